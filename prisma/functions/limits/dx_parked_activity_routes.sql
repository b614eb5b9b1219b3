-- Lists the limits and routes of activities that wait for a slot, in order.
--
-- Bound: one look at an index for each. Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_parked_activity_routes() RETURNS TABLE (limit_name text, route text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  WITH RECURSIVE present AS (
    (
      SELECT w.limit_name, w.route FROM worker_queue AS w
      WHERE w.limit_name IS NOT NULL AND w.visible_at = 'infinity'
      ORDER BY w.limit_name, w.route LIMIT 1
    )
    UNION ALL
    SELECT next.limit_name, next.route
    FROM present
    CROSS JOIN LATERAL (
      SELECT w.limit_name, w.route FROM worker_queue AS w
      WHERE w.limit_name IS NOT NULL AND w.visible_at = 'infinity'
        AND (w.limit_name, w.route) > (present.limit_name, present.route)
      ORDER BY w.limit_name, w.route LIMIT 1
    ) AS next
  )
  SELECT present.limit_name, present.route FROM present
$$;
