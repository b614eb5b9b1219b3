-- Whether the clock of a turn differs from the time of the statement by more than two seconds: then the statement says
-- its time, or leaves the turn.
CREATE OR REPLACE FUNCTION dx_is_clock_off(p_clock_ms bigint, p_now_ms bigint) RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$
  SELECT abs(p_clock_ms - p_now_ms) > 2000
$$;
