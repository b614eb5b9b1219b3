-- Whether a worker takes activities with this route (name and tag).
CREATE OR REPLACE FUNCTION dx_is_served(
  p_route text,
  p_names text[],
  p_untagged boolean,
  p_tags text[]                    -- null: every tag
)
RETURNS boolean
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT EXISTS (
    SELECT
    FROM unnest(p_names) AS one (name)
    WHERE (p_untagged AND p_route = one.name)
      OR (p_tags IS NULL AND starts_with(p_route, one.name || ' #'))
      OR (starts_with(p_route, one.name || ' #') AND substr(p_route, length(one.name) + 3) = ANY (p_tags))
  )
$$;
