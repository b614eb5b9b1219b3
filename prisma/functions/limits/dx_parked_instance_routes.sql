-- Lists the limits and routes of instances that wait for a slot.
--
-- Bound: two looks at an index for each name of a limit that a running instance has, and one for each route that waits.
-- Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_parked_instance_routes() RETURNS TABLE (limit_name text, route text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  -- Name by name: behind the routes of a name the index has its instances with a slot, whose limit_route is null. A
  -- walk from route to route across names would read them all.
  WITH RECURSIVE named AS (
    (
      SELECT i.limit_name FROM instances AS i
      WHERE i.limit_name IS NOT NULL AND (i.status = 'Running') IS TRUE
      ORDER BY i.limit_name LIMIT 1
    )
    UNION ALL
    SELECT next.limit_name
    FROM named
    CROSS JOIN LATERAL (
      SELECT i.limit_name FROM instances AS i
      WHERE (i.status = 'Running') IS TRUE AND i.limit_name > named.limit_name
      ORDER BY i.limit_name LIMIT 1
    ) AS next
  ),
  present AS (
    SELECT first.limit_name, first.limit_route
    FROM named
    CROSS JOIN LATERAL (
      SELECT i.limit_name, i.limit_route FROM instances AS i
      WHERE (i.status = 'Running') IS TRUE AND i.limit_name = named.limit_name AND i.limit_route IS NOT NULL
      ORDER BY i.limit_route LIMIT 1
    ) AS first
    UNION ALL
    SELECT next.limit_name, next.limit_route
    FROM present
    CROSS JOIN LATERAL (
      SELECT i.limit_name, i.limit_route FROM instances AS i
      WHERE (i.status = 'Running') IS TRUE AND i.limit_name = present.limit_name AND i.limit_route > present.limit_route
      ORDER BY i.limit_route LIMIT 1
    ) AS next
  )
  SELECT present.limit_name, present.limit_route FROM present
$$;
