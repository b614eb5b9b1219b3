-- Returns when all used tokens of a rate are back, in milliseconds since the Unix epoch; null without a rate.
--
-- A rate is kept by this number alone (GCRA): a token takes p_rate_ms / p_rate to come back, and p_burst may be
-- missing. A stored time that is later than tokens explain is from before the clock was set back, or the rate raised.
CREATE OR REPLACE FUNCTION dx_tokens_back_ms(
  p_stored_ms double precision,    -- null: none were used
  p_rate integer, p_rate_ms bigint, p_burst integer, p_now_ms bigint
) RETURNS double precision LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE WHEN p_rate IS NOT NULL THEN
    greatest(least(COALESCE(p_stored_ms, 0), p_now_ms + (p_burst + 1) * p_rate_ms::float8 / p_rate), p_now_ms)
  END
$$;
