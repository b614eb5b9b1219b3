-- Returns a semantic version as numbers that compare as versions do: major, minor, patch, and 0 for a pre-release, else
-- 1. Any other text is lower than every version. Pre-releases of one version are equal.
CREATE OR REPLACE FUNCTION dx_semantic_version(
  p_version text
)
RETURNS integer[]
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_version ~ '^[0-9]{1,9}[.][0-9]{1,9}[.][0-9]{1,9}([-+]|$)' THEN
      string_to_array(substring(p_version FROM '^[0-9.]+'), '.')::integer[]
        || (p_version !~ '^[0-9.]+-')::integer
    ELSE '{-1}'::integer[]
  END
$$;
