-- Remembers in this session what a full look through a queue has found, for 20 times as long as it took, at most 10
-- seconds: full looks then take a twentieth of the time, however many dead rows an open transaction keeps. Returns the
-- mark.
--
-- The mark stays a second behind the time of the look, so that what is committed or given back within a second of its
-- time is found at once.
CREATE OR REPLACE FUNCTION dx_set_mark(
  p_setting text,                  -- as in dx_read_mark
  p_key text,                      -- what is asked for
  p_began timestamptz,             -- when the look began
  p_oldest timestamptz,            -- of the rows that wait; null without one
  p_routes text[]                  -- that had rows; null without one
) RETURNS text LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT set_config(
    p_setting,
    (
      ARRAY[
        p_key,
        look.began_ms::text, (look.ended_ms + least(20 * (look.ended_ms - look.began_ms), 10000))::text,
        least(look.began_ms - 1000, floor(extract(epoch FROM p_oldest) * 1000)::bigint)::text
      ] || p_routes
    )::text,
    false
  )
  FROM (
    SELECT
      floor(extract(epoch FROM p_began) * 1000)::bigint AS began_ms,
      ceil(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ended_ms
  ) AS look
$$;
