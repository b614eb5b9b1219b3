-- Returns which processes may run the next turn of an instance, as one text that an index can search: the version the
-- execution is pinned to, the version of the orchestration, and its name, such as `1000.1.0 =1.0.0 Fulfil`.
--
-- `-` means that the execution is not pinned, ` *` any version of the orchestration, ` >1.0.0` that version or a newer
-- one.
CREATE OR REPLACE FUNCTION dx_route(
  p_major integer,                 -- pinned version; null without one
  p_minor integer, p_patch integer, p_name text,
  p_version text,                  -- null: any
  p_or_newer boolean
) RETURNS text LANGUAGE sql IMMUTABLE
AS $$
  -- Casts, because integer || text is not immutable, and then PostgreSQL could not inline the function.
  SELECT COALESCE(p_major::text || '.' || p_minor::text || '.' || p_patch::text, '-')
    || CASE WHEN p_version IS NULL THEN ' *' WHEN p_or_newer THEN ' >' || p_version ELSE ' =' || p_version END
    || ' ' || p_name
$$;
