-- Returns the time that is so many milliseconds after the Unix epoch, at most the end of the year 9999: clients read no
-- later dates.
CREATE OR REPLACE FUNCTION dx_time_of(p_ms bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE
AS $$
  SELECT to_timestamp(least(p_ms, 253402300799999)::float8 / 1000)
$$;
