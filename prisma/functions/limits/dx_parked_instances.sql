-- Lists the limits and routes of instances that wait for a slot, in order.
--
-- Bound: one look at an index for each. Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_parked_instances() RETURNS TABLE (limit_name text, route text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  WITH RECURSIVE present AS (
    (
      SELECT i.limit_name, i.limit_route FROM instances AS i
      WHERE i.limit_route IS NOT NULL
      ORDER BY i.limit_name, i.limit_route LIMIT 1
    )
    UNION ALL
    SELECT next.limit_name, next.limit_route
    FROM present
    CROSS JOIN LATERAL (
      SELECT i.limit_name, i.limit_route FROM instances AS i
      WHERE i.limit_route IS NOT NULL AND (i.limit_name, i.limit_route) > (present.limit_name, present.limit_route)
      ORDER BY i.limit_name, i.limit_route LIMIT 1
    ) AS next
  )
  SELECT present.limit_name, present.limit_route FROM present
$$;
