-- Changes the limits of a definition, at run time. Bounds that are left out stay as they are; null removes one. What
-- waits without a lock waits for a slot from now on; what runs has one.
--
-- Returns false, and changes nothing, if the definition has limits and p_replaces is false; else true.
--
-- A statement under way that read no limit may still store activities: they have no slot and are not counted. The
-- limit of an activity or orchestration is announced to all processes.
--
-- Bound: what waits of the name; of a task, all that have not ended. Locks: the advisory lock of the limit (waits for
-- those that give slots), its rows; then those of dx_limit_activities, dx_limit_instances or dx_limit_tasks.
CREATE OR REPLACE FUNCTION dx_set_limit(
  p_kind text,                     -- activity, orchestration or task
  p_name text,
  p_changes jsonb,                 -- {total, each_key, keys: {<key>: bound}}, each bound {concurrency, rate, rate_ms,
                                   --   burst} or null
  p_replaces boolean DEFAULT true,
  p_now_ms bigint DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
BEGIN
  PERFORM pg_advisory_xact_lock(dx_limit_lock(p_kind, p_name));
  INSERT INTO limits (kind, name, since) VALUES (p_kind, p_name, v_now) ON CONFLICT (kind, name) DO NOTHING;
  IF NOT FOUND AND NOT p_replaces THEN
    RETURN false;
  END IF;

  UPDATE limits AS l
  SET since = v_now,
      concurrency = CASE WHEN changes.total THEN all_keys.concurrency ELSE l.concurrency END,
      rate = CASE WHEN changes.total THEN all_keys.rate ELSE l.rate END,
      rate_ms = CASE WHEN changes.total THEN all_keys.rate_ms ELSE l.rate_ms END,
      burst = CASE WHEN changes.total THEN all_keys.burst ELSE l.burst END,
      key_concurrency = CASE WHEN changes.each_key THEN one_key.concurrency ELSE l.key_concurrency END,
      key_rate = CASE WHEN changes.each_key THEN one_key.rate ELSE l.key_rate END,
      key_rate_ms = CASE WHEN changes.each_key THEN one_key.rate_ms ELSE l.key_rate_ms END,
      key_burst = CASE WHEN changes.each_key THEN one_key.burst ELSE l.key_burst END
  FROM (SELECT p_changes ? 'total' AS total, p_changes ? 'each_key' AS each_key) AS changes,
    jsonb_to_record(COALESCE(NULLIF(p_changes -> 'total', 'null'), '{}'))
      AS all_keys (concurrency integer, rate integer, rate_ms bigint, burst integer),
    jsonb_to_record(COALESCE(NULLIF(p_changes -> 'each_key', 'null'), '{}'))
      AS one_key (concurrency integer, rate integer, rate_ms bigint, burst integer)
  WHERE l.kind = p_kind AND l.name = p_name;

  DELETE FROM limit_keys AS k
  WHERE k.kind = p_kind AND k.name = p_name AND k.is_own AND p_changes -> 'keys' -> k.key = 'null';
  INSERT INTO limit_keys (kind, name, key, is_own, concurrency, rate, rate_ms, burst)
  SELECT p_kind, p_name, own.key, true, bound.concurrency, bound.rate, bound.rate_ms, bound.burst
  FROM jsonb_each(COALESCE(p_changes -> 'keys', '{}')) AS own (key, value)
  CROSS JOIN LATERAL jsonb_to_record(own.value)
    AS bound (concurrency integer, rate integer, rate_ms bigint, burst integer)
  WHERE own.value <> 'null'
  ON CONFLICT (kind, name, key) DO UPDATE
  SET is_own = true, concurrency = EXCLUDED.concurrency, rate = EXCLUDED.rate, rate_ms = EXCLUDED.rate_ms,
      burst = EXCLUDED.burst;

  IF p_kind = 'activity' THEN
    PERFORM dx_limit_activities(p_name, v_now);
  ELSIF p_kind = 'task' THEN
    PERFORM dx_limit_tasks(p_name, v_now_ms);
  ELSIF p_kind = 'orchestration' THEN
    PERFORM dx_limit_instances(p_name, v_now);
  END IF;
  RETURN true;
END
$$;
