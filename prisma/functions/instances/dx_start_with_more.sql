-- Starts instances as dx_start_orchestrations does, some of them with more: at a time, in place of an ended instance of
-- the same id, or with a message. A part of dx_start_orchestrations.
--
-- Returns one outcome per start, in order, as dx_start_orchestrations. Of a start with a message: Started, and the
-- message is behind it; AlreadyExists, and the message is sent to the running instance; Full if that instance has too
-- many messages; Ended if the instance of this id has ended. The last two send nothing.
--
-- Bound: the starts given; for each instance that is deleted as dx_delete_ended; for messages as
-- dx_enqueue_for_orchestrator. Locks: those of dx_delete_ended by id, then those of dx_start_orchestrations. Two sets
-- with several starts that delete may wait for each other: PostgreSQL then fails one with 40P01.
CREATE OR REPLACE FUNCTION dx_start_with_more(
  p_starts jsonb,                  -- as in dx_start_orchestrations; some have more: {start_at_ms, replaces, message}
                                   --   replaces: Ended or Failed, as in dx_delete_ended; message: {work_item or
                                   --   text_at, most_waiting, most_events}
  p_turns jsonb,                   -- this and the following: as in dx_start_orchestrations
  p_history jsonb, p_key_values jsonb, p_worker_items jsonb, p_cancelled_activities jsonb, p_orchestrator_items jsonb,
  p_workers jsonb, p_texts text[], p_now_ms bigint
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_start jsonb;
  v_answers jsonb;
  v_messages jsonb;
  v_ended bigint[];
  v_full bigint[];
BEGIN
  FOR v_start IN
    SELECT start.value FROM jsonb_array_elements(p_starts) AS start (value)
    WHERE start.value #> '{more,replaces}' IS NOT NULL
    ORDER BY (start.value ->> 'instance_id') COLLATE "C"
  LOOP
    PERFORM dx_delete_ended(v_start ->> 'instance_id', v_start #>> '{more,replaces}');
  END LOOP;

  v_answers := dx_start_orchestrations(
    (
      SELECT jsonb_agg(
        CASE
          WHEN start.value #> '{more,start_at_ms}' IS NULL THEN start.value - 'more'
          ELSE start.value - 'more' || jsonb_build_object(
            'delay_ms', greatest((start.value #>> '{more,start_at_ms}')::bigint - p_now_ms, 0)
          )
        END
        ORDER BY start.position
      )
      FROM jsonb_array_elements(p_starts) WITH ORDINALITY AS start (value, position)
    ),
    p_turns, p_history, p_key_values, p_worker_items, p_cancelled_activities, p_orchestrator_items, p_workers, p_texts,
    p_now_ms
  );
  IF NOT p_starts @? '$[*].more.message' THEN
    RETURN v_answers;
  END IF;

  WITH sent AS (
    SELECT start.position, start.value ->> 'instance_id' AS instance_id, start.value #> '{more,message}' AS message,
      v_answers -> (start.position - 1)::integer <> '"AlreadyExists"' AS is_new
    FROM jsonb_array_elements(p_starts) WITH ORDINALITY AS start (value, position)
    WHERE start.value #> '{more,message}' IS NOT NULL
  ),
  running AS (
    SELECT id FROM dx_running_instances(ARRAY(SELECT sent.instance_id FROM sent WHERE NOT sent.is_new)) AS r (id)
  ),
  judged AS (
    SELECT sent.*, sent.is_new OR sent.instance_id IN (SELECT running.id FROM running) AS is_running FROM sent
  )
  SELECT
    jsonb_agg(
      jsonb_build_object('position', judged.position, 'instance_id', judged.instance_id)
        || CASE WHEN judged.is_new THEN judged.message - 'most_waiting' - 'most_events' ELSE judged.message END
      ORDER BY judged.position
    ) FILTER (WHERE judged.is_running),
    array_agg(judged.position) FILTER (WHERE NOT judged.is_running)
  INTO v_messages, v_ended FROM judged;
  IF v_messages IS NOT NULL THEN
    v_full := ARRAY(
      SELECT (v_messages -> (refused.index - 1)::integer ->> 'position')::bigint
      FROM unnest(dx_enqueue_for_orchestrator(v_messages, p_texts, p_now_ms)) AS refused (index)
    );
  END IF;
  RETURN (
    SELECT jsonb_agg(
      CASE
        WHEN answer.position = ANY (v_ended) THEN to_jsonb('Ended'::text)
        WHEN answer.position = ANY (v_full) THEN to_jsonb('Full'::text)
        ELSE answer.value
      END
      ORDER BY answer.position
    )
    FROM jsonb_array_elements(v_answers) WITH ORDINALITY AS answer (value, position)
  );
END
$$;
