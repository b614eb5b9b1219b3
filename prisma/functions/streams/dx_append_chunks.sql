-- Appends chunks of running activities to streams of their instances.
--
-- Returns one outcome per item, in order: Done; LockLost if the token is unknown, superseded or settled, if the
-- activity was cancelled, or if its instance has ended or is gone; Locked if another transaction has locked the
-- activity or the instance, which is to be asked again. A lock that has expired and was not taken over is good enough,
-- as for a renewal.
--
-- Of an item with is_repeat, chunks are left out that an earlier call has stored, whose answer was lost.
--
-- A chunk of an older delivery never follows one of a newer delivery: the token is compared while the row of the stream
-- is locked.
--
-- Bound: the items given; of a repeated one the chunks of its stream. Locks: rows of progress_streams by instance and
-- name, before each new one that of its instance (key share, skip locked); then worker rows (key share, skip locked).
-- It waits for streams alone, and so for no transaction that waits for it.
CREATE OR REPLACE FUNCTION dx_append_chunks(
  p_items jsonb,                   -- [{token, instance_id, stream, writer, number, is_repeat, chunks, keep_chunks,
                                   --   keep_bytes}]
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now timestamptz := to_timestamp(
    COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)::float8 / 1000
  );
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_streams bigint[] := array_fill(NULL::bigint, ARRAY[jsonb_array_length(p_items)]);
  v_empty bigint[] := '{}';
  v_item record;
  v_stream_id bigint;
  v_stored bigint;
BEGIN
  FOR v_item IN
    SELECT item.instance_id, item.stream, array_agg(item.position) AS positions
    FROM ROWS FROM (jsonb_to_recordset(p_items) AS (instance_id text, stream text))
      WITH ORDINALITY AS item (instance_id, stream, position)
    GROUP BY item.instance_id, item.stream
    ORDER BY item.instance_id COLLATE "C", item.stream COLLATE "C"
  LOOP
    v_stream_id := dx_lock_stream(v_item.instance_id, v_item.stream, false, v_now);
    FOR v_index IN 1 .. cardinality(v_item.positions) LOOP
      v_streams[v_item.positions[v_index]] := v_stream_id;
    END LOOP;
  END LOOP;

  -- These look-ups see what was committed before the streams were locked.
  FOR v_item IN
    SELECT
      item.position, item.instance_id, item.writer, item.number, item.is_repeat, item.chunks, item.keep_chunks,
      item.keep_bytes, v_streams[item.position] AS stream_id, found.execution_id AS found, held.id AS held
    FROM ROWS FROM (
      jsonb_to_recordset(p_items) AS (
        token text, instance_id text, writer text, number bigint, is_repeat boolean, chunks text[], keep_chunks bigint,
        keep_bytes bigint
      )
    ) WITH ORDINALITY
      AS item (token, instance_id, writer, number, is_repeat, chunks, keep_chunks, keep_bytes, position)
    CROSS JOIN LATERAL (
      SELECT w.execution_id FROM worker_queue AS w
      WHERE w.id = dx_row_id(item.token)
        AND w.lock_token = split_part(item.token, '.', 2)
        AND w.instance_id || '' = item.instance_id
      OFFSET 0
    ) AS found
    LEFT JOIN LATERAL (
      SELECT w.id FROM worker_queue AS w
      WHERE w.id = dx_row_id(item.token) AND w.lock_token = split_part(item.token, '.', 2)
      FOR KEY SHARE SKIP LOCKED
    ) AS held ON true
    ORDER BY item.position
  LOOP
    IF v_item.held IS NULL OR v_item.stream_id IS NULL THEN
      v_outcomes[v_item.position] := CASE
        WHEN (SELECT i.instance_id FROM instances AS i WHERE i.instance_id = v_item.instance_id) IS NULL THEN 'LockLost'
        ELSE 'Locked'
      END;
      CONTINUE;
    END IF;
    CONTINUE WHEN NOT dx_is_execution_running(v_item.instance_id, v_item.found);
    v_outcomes[v_item.position] := 'Done';
    IF v_item.is_repeat THEN
      -- The first of them may have been removed since.
      SELECT COALESCE(max(c.number) + 1 - v_item.number, 0) INTO v_stored FROM progress_chunks AS c
      WHERE c.stream_id = v_item.stream_id AND c.writer = v_item.writer AND c.number >= v_item.number;
      CONTINUE WHEN v_stored >= cardinality(v_item.chunks);
    ELSE
      v_stored := 0;
    END IF;
    PERFORM dx_insert_chunks(
      v_item.stream_id, v_item.writer, v_item.number + v_stored, v_item.chunks[v_stored + 1 :], v_item.keep_chunks,
      v_item.keep_bytes, v_now
    );
  END LOOP;

  v_empty := ARRAY(
    SELECT DISTINCT v_streams[outcome.position] FROM unnest(v_outcomes) WITH ORDINALITY AS outcome (what, position)
    WHERE outcome.what <> 'Done' AND v_streams[outcome.position] IS NOT NULL
  );
  IF v_empty <> '{}' THEN
    DELETE FROM progress_streams AS s WHERE s.id = ANY (v_empty) AND s.next_offset = 0;
  END IF;
  RETURN v_outcomes;
END
$$;
