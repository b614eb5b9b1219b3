-- Gives claimed batches back: their messages are free again, at once or after a delay, and the leases end.
--
-- Returns one outcome per item, in their order: Done, or LockLost when the token is unknown, superseded or settled (of
-- two items with one token the second). An expired lease that nobody took over can still be given back.
--
-- Bound: the batches of these leases. Locks: leases by instance; queue rows of the batches.
CREATE OR REPLACE FUNCTION dx_abandon_orchestration_items(
  p_items jsonb,                   -- [{token, delay_ms, ignore_attempt}]; delay null or 0: visible as before
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS text[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_latest_ms CONSTANT bigint := 253402300799999; -- the end of the year 9999: clients read no later dates
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_instances text[] := '{}';
  v_secrets text[] := '{}';
  v_claimed_ms bigint[] := '{}';
  v_delays bigint[] := '{}';
  v_ignores boolean[] := '{}';
  v_lease record;
  v_previous text;
BEGIN
  FOR v_lease IN
    SELECT a.position, a.delay_ms, a.ignore_attempt, l.instance_id, l.lock_token, l.locked_at
    FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text, delay_ms bigint, ignore_attempt boolean))
      WITH ORDINALITY AS a (token, delay_ms, ignore_attempt, position)
    JOIN instance_locks AS l ON l.instance_id = substr(a.token, 38)
    WHERE l.lock_token = left(a.token, 36)
    ORDER BY l.instance_id COLLATE "C", a.position
    FOR UPDATE OF l
  LOOP
    CONTINUE WHEN v_lease.instance_id = v_previous;
    v_previous := v_lease.instance_id;
    v_outcomes[v_lease.position] := 'Done';
    v_instances := v_instances || v_lease.instance_id;
    v_secrets := v_secrets || v_lease.lock_token;
    v_claimed_ms := v_claimed_ms || v_lease.locked_at;
    v_delays := v_delays || v_lease.delay_ms;
    v_ignores := v_ignores || v_lease.ignore_attempt;
  END LOOP;

  UPDATE orchestrator_queue AS q
  SET lock_token = NULL,
      locked_until = NULL,
      visible_at = CASE
        WHEN a.delay_ms > 0 THEN to_timestamp(least(v_now_ms + a.delay_ms, v_latest_ms)::float8 / 1000)
        ELSE q.visible_at
      END,
      attempt_count = CASE WHEN a.ignore_attempt THEN greatest(q.attempt_count - 1, 0) ELSE q.attempt_count END
  FROM unnest(v_instances, v_secrets, v_claimed_ms, v_delays, v_ignores)
    AS a (instance_id, lock_token, locked_at, delay_ms, ignore_attempt)
  WHERE q.instance_id = a.instance_id
    AND q.visible_at <= to_timestamp(a.locked_at::float8 / 1000)
    AND q.lock_token = a.lock_token;

  DELETE FROM instance_locks AS l
  WHERE l.instance_id = ANY (v_instances);
  RETURN v_outcomes;
END
$$;
