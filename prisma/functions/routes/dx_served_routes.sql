-- Lists the routes of queued messages that a process takes, those with ~ of instances that wait for limits among them:
-- by the version that an instance is pinned to, and by its program (dx_route).
--
-- Bound: one look per route that has rows. Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_served_routes(
  p_min_version integer[],         -- this and the following: as in dx_fetch_orchestration_items
  p_max_version integer[], p_names text[], p_versions text[], p_orphans boolean
) RETURNS TABLE (route text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT present.route FROM dx_routes_of_messages() AS present
  CROSS JOIN LATERAL (
    SELECT
      ltrim(split_part(present.route, ' ', 1), '~') AS pinned,
      substr(present.route, strpos(present.route, ' ')) AS program
  ) AS part
  WHERE (present.route <> '' OR p_orphans)
    AND (
      p_min_version IS NULL
      OR CASE
        WHEN part.pinned IN ('', '-') THEN true
        WHEN part.pinned ~ '^[0-9]{1,9}[.][0-9]{1,9}[.][0-9]{1,9}$' THEN
          string_to_array(part.pinned, '.')::integer[] BETWEEN p_min_version AND p_max_version
        -- A row written by hand; claims must not fail for that.
        ELSE false
      END
    )
    AND CASE
      WHEN p_names IS NULL THEN true
      WHEN part.program LIKE ' >%' THEN EXISTS (
        SELECT FROM unnest(p_names, p_versions) AS served (name, version)
        WHERE served.name = substr(part.program, strpos(substr(part.program, 2), ' ') + 2)
          AND dx_semantic_version(served.version) COLLATE "C"
            >= dx_semantic_version(substr(split_part(substr(part.program, 2), ' ', 1), 2))
      )
      ELSE part.program = ANY (
        ARRAY(
          SELECT unnest(ARRAY[' =' || served.version || ' ' || served.name, ' * ' || served.name])
          FROM unnest(p_names, p_versions) AS served (name, version)
        )
      )
    END
$$;
