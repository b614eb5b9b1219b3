-- Whether a worker takes an activity of a route that dx_is_served has let through. Its tag decides, as a name may end
-- like the tag of another route.
CREATE OR REPLACE FUNCTION dx_is_taken(
  p_route text,
  p_stored_tag text,               -- as in the column `tag`
  p_names text[],                  -- null: every name
  p_untagged boolean,
  p_tags text[]                    -- null: every tag
) RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$
  SELECT
    CASE WHEN dx_tag(p_stored_tag) IS NULL THEN p_untagged ELSE p_tags IS NULL OR p_stored_tag = ANY (p_tags) END
    AND (p_names IS NULL OR left(p_route, length(p_route) - COALESCE(length(dx_tag(p_stored_tag)) + 2, 0)) = ANY (p_names))
$$;
