-- Writes the row of a process, or that it still lives. Returns for how many milliseconds it counts as alive without
-- another call; null for one whose session that listens holds the lock of dx_process_key, as long as that is held.
--
-- With a new row, it notes which processes are dead, and deletes those that were found dead more than a day ago.
-- Bound: the row; with a new one, what dx_read_processes reads. Locks: the row; rows of dead processes (skip locked).
CREATE OR REPLACE FUNCTION dx_register_process(
  -- {id, build, host, pid, orchestrations, activities, untagged, tags, orchestration_slots, activity_slots, listens,
  --  slots_in_use: {orchestrations, activities}}
  p_process jsonb, p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_id uuid := (p_process ->> 'id')::uuid;
  v_listens boolean := (p_process ->> 'listens')::boolean;
BEGIN
  UPDATE processes AS p
  SET seen_at = v_now, listens = v_listens, found_dead_at = NULL,
      orchestrations_in_use = (p_process #>> '{slots_in_use,orchestrations}')::integer,
      activities_in_use = (p_process #>> '{slots_in_use,activities}')::integer
  WHERE p.id = v_id;
  IF NOT FOUND THEN
    INSERT INTO processes (
      id, build, host, pid, orchestrations, activities, untagged, tags, orchestration_slots, activity_slots, since,
      seen_at, listens, orchestrations_in_use, activities_in_use
    )
    VALUES (
      v_id, p_process ->> 'build', p_process ->> 'host', (p_process ->> 'pid')::integer,
      ARRAY(SELECT jsonb_array_elements_text(p_process -> 'orchestrations')),
      ARRAY(SELECT jsonb_array_elements_text(p_process -> 'activities')),
      (p_process ->> 'untagged')::boolean,
      CASE
        WHEN jsonb_typeof(p_process -> 'tags') = 'array'
        THEN ARRAY(SELECT jsonb_array_elements_text(p_process -> 'tags'))
      END,
      (p_process ->> 'orchestration_slots')::integer, (p_process ->> 'activity_slots')::integer, v_now, v_now, v_listens,
      (p_process #>> '{slots_in_use,orchestrations}')::integer, (p_process #>> '{slots_in_use,activities}')::integer
    )
    ON CONFLICT DO NOTHING;

    WITH dead AS (
      SELECT p.id
      FROM processes AS p
      WHERE p.id IN (SELECT r.out_id FROM dx_read_processes(v_now_ms) AS r WHERE NOT r.out_is_alive) AND p.id <> v_id
      ORDER BY p.id
      FOR UPDATE SKIP LOCKED
    ),
    passed AS (
      DELETE FROM processes AS p USING dead
      WHERE p.id = dead.id AND p.found_dead_at < v_now - interval '1 day'
    )
    UPDATE processes AS p SET found_dead_at = v_now FROM dead WHERE p.id = dead.id AND p.found_dead_at IS NULL;
  END IF;
  RETURN CASE WHEN NOT v_listens THEN 180000 END;
END
$$;
