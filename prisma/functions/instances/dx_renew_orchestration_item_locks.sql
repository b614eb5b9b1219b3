-- Extends locks, and those of their messages, to now + extend_for_ms. An expired lock becomes live again if no other
-- process has taken over, so that an outage of the database alone costs no process its work.
--
-- Returns one outcome per item, in order: Done, or LockLost if the token is unknown, superseded or settled.
-- Bound: the batches of these locks. Locks: instance locks by instance; queue rows of the batches.
CREATE OR REPLACE FUNCTION dx_renew_orchestration_item_locks(
  p_items jsonb,                   -- [{token, extend_for_ms}]
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_instances text[] := '{}';
  v_secrets text[] := '{}';
  v_claimed_ms bigint[] := '{}';
  v_until_ms bigint[] := '{}';
  v_end_ms bigint;
  v_lock record;
  v_previous text;
BEGIN
  FOR v_lock IN
    SELECT a.position, v_now_ms + a.extend_for_ms AS until_ms, l.instance_id, l.lock_token, l.locked_at
    FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text, extend_for_ms bigint))
      WITH ORDINALITY AS a (token, extend_for_ms, position)
    JOIN instance_locks AS l ON l.instance_id = substr(a.token, 38)
    WHERE l.lock_token = left(a.token, 36)
    ORDER BY l.instance_id COLLATE "C", a.position DESC -- of two renewals of one lock the last counts
    FOR UPDATE OF l
  LOOP
    v_outcomes[v_lock.position] := 'Done';
    CONTINUE WHEN v_lock.instance_id = v_previous;
    v_previous := v_lock.instance_id;
    v_instances := v_instances || v_lock.instance_id;
    v_secrets := v_secrets || v_lock.lock_token;
    v_claimed_ms := v_claimed_ms || v_lock.locked_at;
    v_until_ms := v_until_ms || v_lock.until_ms;
  END LOOP;

  UPDATE instance_locks AS l SET locked_until = a.until_ms
  FROM unnest(v_instances, v_until_ms) AS a (instance_id, until_ms)
  WHERE l.instance_id = a.instance_id;

  -- As a rule one round: all locks of a process are extended by the same time. Not a plain join: planned while
  -- statistics call the queue empty, it would read all of it.
  FOR v_end_ms IN SELECT DISTINCT item.until_ms FROM unnest(v_until_ms) AS item (until_ms) LOOP
    UPDATE orchestrator_queue AS q SET locked_until = v_end_ms
    WHERE q.id = ANY (ARRAY(
      SELECT message.id
      FROM unnest(v_instances, v_secrets, v_claimed_ms, v_until_ms)
        AS claimed (instance_id, lock_token, locked_at, until_ms)
      CROSS JOIN LATERAL (
        SELECT m.id FROM orchestrator_queue AS m
        WHERE m.instance_id = claimed.instance_id
          AND m.due_at <= to_timestamp(claimed.locked_at::float8 / 1000)
          AND m.lock_token = claimed.lock_token
        OFFSET 0
      ) AS message
      WHERE claimed.until_ms = v_end_ms
    ));
  END LOOP;
  RETURN v_outcomes;
END
$$;
