-- Returns the key-values of an instance as readers see them: for each key the change of the current execution, or else
-- the value that ended executions left.
--
-- Returns one row per key that has a value, by key.
-- Bound: the key-values of the instance, or the one key. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_key_values(
  p_instance_id text,
  p_key text                       -- null means every key
) RETURNS TABLE (out_key text, out_value text) LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
  SELECT d.key, d.value FROM kv_delta AS d
  WHERE d.instance_id = p_instance_id AND (p_key IS NULL OR d.key = p_key) AND d.value IS NOT NULL
  UNION ALL
  SELECT s.key, s.value FROM kv_store AS s
  WHERE s.instance_id = p_instance_id
    AND (p_key IS NULL OR s.key = p_key)
    AND NOT EXISTS (SELECT FROM kv_delta AS d WHERE d.instance_id = s.instance_id AND d.key = s.key)
  ORDER BY 1
$$;
