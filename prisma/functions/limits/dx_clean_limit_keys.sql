-- Deletes ten rows of keys whose tokens are back, so that rows of keys do not add up.
--
-- Bound: ten rows. Locks: these rows.
CREATE OR REPLACE FUNCTION dx_clean_limit_keys(p_limit limits, p_now_ms bigint) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  IF p_limit.key_rate IS NULL THEN
    RETURN;
  END IF;
  DELETE FROM limit_keys AS k
  -- By ctid: PostgreSQL 15 reads all keys of the name to find ten of them.
  WHERE k.ctid = ANY (ARRAY(
    SELECT old.ctid FROM limit_keys AS old
    WHERE old.kind = p_limit.kind AND old.name = p_limit.name AND old.free_ms <= p_now_ms AND NOT old.is_own
    ORDER BY old.free_ms LIMIT 10
    FOR UPDATE
  ));
END
$$;
