-- Returns the bounds of a key of a limit: its own, or those of each key. Its tokens, if it has used some.
--
-- Bound: one row. Locks: none.
CREATE OR REPLACE FUNCTION dx_limit_key(p_limit limits, p_key text) RETURNS limit_keys LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
DECLARE
  v_key limit_keys;
BEGIN
  SELECT k.* INTO v_key FROM limit_keys AS k
  WHERE k.kind = p_limit.kind AND k.name = p_limit.name AND k.key = p_key;
  IF v_key.is_own IS NOT TRUE THEN
    v_key.concurrency := p_limit.key_concurrency;
    v_key.rate := p_limit.key_rate;
    v_key.rate_ms := p_limit.key_rate_ms;
    v_key.burst := p_limit.key_burst;
  END IF;
  RETURN v_key;
END
$$;
