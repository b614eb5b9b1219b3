-- Returns when the next token of a rate is free, in milliseconds since the Unix epoch; null without a rate.
CREATE OR REPLACE FUNCTION dx_next_token_ms(
  p_back_ms double precision,      -- when all are back: of dx_tokens_back_ms
  p_rate integer, p_rate_ms bigint, p_burst integer
) RETURNS double precision LANGUAGE sql IMMUTABLE
AS $$
  SELECT p_back_ms - (p_burst - 1) * p_rate_ms::float8 / p_rate
$$;
