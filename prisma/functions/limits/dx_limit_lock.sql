-- Returns the advisory lock of a limit; see dx_admit_at_once.
CREATE OR REPLACE FUNCTION dx_limit_lock(
  p_kind text, p_name text, p_part integer DEFAULT 0 -- from 1: one of those that may give slots at once
) RETURNS bigint LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN hashtextextended(concat_ws(' ', 'limit', p_part, p_kind, p_name), 'limits'::regclass::oid::bigint);
END
$$;
