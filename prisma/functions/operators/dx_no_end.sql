-- The end of a lock that an operator sets, in milliseconds: that of the year 9999. No clock reaches it, and every
-- client reads it.
CREATE OR REPLACE FUNCTION dx_no_end() RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
  SELECT 253402300799999
$$;
