-- Lists the routes that have queued messages, in order.
--
-- Bound: one look at an index for each. Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_routes_of_messages() RETURNS TABLE (route text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  WITH RECURSIVE present AS (
    (SELECT q.route FROM orchestrator_queue AS q ORDER BY q.route LIMIT 1)
    UNION ALL
    SELECT (
      SELECT q.route FROM orchestrator_queue AS q
      WHERE q.route > present.route
      ORDER BY q.route LIMIT 1
    )
    FROM present WHERE present.route IS NOT NULL
  )
  SELECT present.route FROM present
  WHERE present.route IS NOT NULL
$$;
