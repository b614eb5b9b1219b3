-- Returns the share of a bound that a part of its limit stands for: a sixteenth, 125 at most, not rounded; null without
-- a bound. Eight shares are half of the bound at most: so the other half may be in use while each of eight transactions
-- gives its share.
CREATE OR REPLACE FUNCTION dx_share_at_once(
  p_concurrency bigint             -- null: no bound
) RETURNS float8 LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE WHEN p_concurrency IS NOT NULL THEN least(125, p_concurrency::float8 / 16) END
$$;
