-- Whether no process holds a row: it has no lock, or its lock has ended.
CREATE OR REPLACE FUNCTION dx_is_free(
  p_token text, p_until_ms bigint, p_now_ms bigint
) RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$
  SELECT p_token IS NULL OR p_until_ms <= p_now_ms
$$;
