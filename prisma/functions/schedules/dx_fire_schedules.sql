-- Settles occurrences of schedules: starts what they start, notes what they have started, and when the next is due, all
-- or nothing for each schedule. A schedule that has changed since it was claimed stays as it is and starts nothing: so
-- an occurrence fires once, however many schedulers have found it due.
--
-- Returns the positions of the schedules that were settled, from 1.
-- Bound: what is given, and 100 older runs of each schedule. Locks: the schedules, by name; then those of
-- dx_cancel_tasks, dx_create_tasks, dx_start_orchestrations and dx_enqueue_for_orchestrator.
CREATE OR REPLACE FUNCTION dx_fire_schedules(
  p_fires jsonb,                   -- [{name, revision, fired_until_ms, next_ms, look_ms, queued, requests, run_count,
                                   --   last}]; last is the number of the run that is its last one from now on, null: as
                                   --   it was
  p_runs jsonb,                    -- this and the following name their schedule by its position, as fire:
                                   --   [{fire, number, kind, occurrence_ms, missed_since_ms, outcome, note,
                                   --   instance_id, task}]; task is a position in p_tasks
  p_starts jsonb,                  -- [{fire, fields of dx_start}]
  p_tasks jsonb,                   -- [{fire, as for dx_create_tasks}]
  p_messages jsonb,                -- [{fire, as for dx_enqueue_for_orchestrator}]
  p_cancels jsonb,                 -- [{fire, task_id, reason}]
  p_texts text[],                  -- as in dx_store_turns
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := dx_time_of(v_now_ms);
  v_kept_runs CONSTANT integer := 100;
  v_won bigint[] := '{}';
  v_fire record;
  v_cancel record;
  v_items jsonb;
  v_positions bigint[];
  v_ids text[];
BEGIN
  FOR v_fire IN
    SELECT f.*
    FROM ROWS FROM (
      jsonb_to_recordset(p_fires) AS (
        name text, revision bigint, fired_until_ms bigint, next_ms bigint, look_ms bigint, queued jsonb, requests jsonb,
        run_count bigint
      )
    ) WITH ORDINALITY AS f (
      name, revision, fired_until_ms, next_ms, look_ms, queued, requests, run_count, position
    )
    ORDER BY f.name COLLATE "C"
  LOOP
    UPDATE schedules AS s
    SET revision = s.revision + 1, fired_until = dx_time_of(v_fire.fired_until_ms),
        next_at = to_timestamp(v_fire.next_ms::float8 / 1000), look_at = to_timestamp(v_fire.look_ms::float8 / 1000),
        queued = v_fire.queued, requests = v_fire.requests, run_count = v_fire.run_count
    WHERE s.name = v_fire.name AND s.revision = v_fire.revision;
    IF FOUND THEN
      v_won := v_won || v_fire.position;
    END IF;
  END LOOP;
  IF v_won = '{}' THEN
    RETURN v_won;
  END IF;

  FOR v_cancel IN
    SELECT array_agg(c.task_id) AS ids, c.reason
    FROM jsonb_to_recordset(p_cancels) AS c (fire bigint, task_id text, reason text)
    WHERE c.fire = ANY (v_won)
    GROUP BY c.reason
    ORDER BY min(c.task_id)
  LOOP
    PERFORM dx_cancel_tasks(v_cancel.ids, v_cancel.reason, true, v_now_ms);
  END LOOP;

  SELECT jsonb_agg(t.task ORDER BY t.position), array_agg(t.position ORDER BY t.position) INTO v_items, v_positions
  FROM jsonb_array_elements(p_tasks) WITH ORDINALITY AS t (task, position)
  WHERE (t.task ->> 'fire')::bigint = ANY (v_won);
  IF v_items IS NOT NULL THEN
    v_ids := ARRAY(
      SELECT task.out_id FROM ROWS FROM (dx_create_tasks(v_items, p_now_ms => v_now_ms))
        WITH ORDINALITY AS task (out_id, out_is_new, position)
      ORDER BY task.position
    );
  END IF;

  v_items := (
    SELECT jsonb_agg(s.start ORDER BY s.position)
    FROM jsonb_array_elements(p_starts) WITH ORDINALITY AS s (start, position)
    WHERE (s.start ->> 'fire')::bigint = ANY (v_won)
  );
  IF v_items IS NOT NULL THEN
    PERFORM dx_start_orchestrations(v_items, p_texts => p_texts, p_now_ms => v_now_ms);
  END IF;

  v_items := (
    SELECT jsonb_agg(m.message ORDER BY m.position)
    FROM jsonb_array_elements(p_messages) WITH ORDINALITY AS m (message, position)
    WHERE (m.message ->> 'fire')::bigint = ANY (v_won)
  );
  IF v_items IS NOT NULL THEN
    PERFORM dx_enqueue_for_orchestrator(v_items, p_texts, v_now_ms);
  END IF;

  INSERT INTO schedule_runs AS r (
    schedule_name, number, kind, occurrence_at, missed_since, outcome, note, instance_id, task_id, settled_at
  )
  SELECT
    p_fires -> (run.fire - 1)::integer ->> 'name', run.number, run.kind, dx_time_of(run.occurrence_ms),
    to_timestamp(run.missed_since_ms::float8 / 1000), run.outcome, run.note, run.instance_id,
    v_ids[array_position(v_positions, run.task)]::uuid, v_now
  FROM jsonb_to_recordset(p_runs) AS run (
    fire bigint, number bigint, kind text, occurrence_ms bigint, missed_since_ms bigint, outcome text, note text,
    instance_id text, task bigint
  )
  WHERE run.fire = ANY (v_won)
  ON CONFLICT (schedule_name, number) DO UPDATE
  SET outcome = EXCLUDED.outcome, note = EXCLUDED.note, instance_id = EXCLUDED.instance_id, task_id = EXCLUDED.task_id,
      settled_at = EXCLUDED.settled_at;

  FOR v_fire IN
    SELECT f.name, f.run_count, f.last
    FROM unnest(v_won) AS won (position)
    CROSS JOIN LATERAL jsonb_to_record(p_fires -> (won.position - 1)::integer)
      AS f (name text, run_count bigint, last bigint)
  LOOP
    IF v_fire.last IS NOT NULL THEN
      UPDATE schedules AS s
      SET (last_instance_id, last_task_id) = (
        SELECT r.instance_id, r.task_id FROM schedule_runs AS r
        WHERE r.schedule_name = v_fire.name AND r.number = v_fire.last
      )
      WHERE s.name = v_fire.name;
    END IF;
    DELETE FROM schedule_runs AS r
    WHERE r.schedule_name = v_fire.name AND r.number <= v_fire.run_count - v_kept_runs;
  END LOOP;
  RETURN v_won;
END
$$;
