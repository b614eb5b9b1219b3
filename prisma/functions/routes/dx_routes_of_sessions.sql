-- Lists the routes that have activities with a session, in order.
--
-- Bound: one look at an index for each. Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_routes_of_sessions() RETURNS TABLE (route text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  WITH RECURSIVE present AS (
    (SELECT q.route FROM worker_queue AS q WHERE num_nulls(q.session_id) = 0 ORDER BY q.route LIMIT 1)
    UNION ALL
    SELECT (
      SELECT q.route FROM worker_queue AS q
      WHERE num_nulls(q.session_id) = 0 AND q.route > present.route
      ORDER BY q.route LIMIT 1
    )
    FROM present WHERE present.route IS NOT NULL
  )
  SELECT present.route FROM present
  WHERE present.route IS NOT NULL
$$;
