-- Whether a worker takes activities with this route (name and tag).
CREATE OR REPLACE FUNCTION dx_is_served(
  p_route text, p_names text[], p_untagged boolean,
  p_tags text[]                    -- null: every tag
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF p_untagged AND p_route = ANY (p_names) THEN
    RETURN true;
  END IF;
  IF strpos(p_route, ' #') = 0 THEN
    RETURN false;
  END IF;
  RETURN EXISTS (
    SELECT FROM unnest(p_names) AS served (name)
    WHERE starts_with(p_route, served.name || ' #')
      AND (p_tags IS NULL OR substr(p_route, length(served.name) + 3) = ANY (p_tags))
  );
END
$$;
