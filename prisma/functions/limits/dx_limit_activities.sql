-- Puts what is queued of an activity under its limit, which was set: what waits without a lock waits for a slot from
-- now on, what has a lock has one. A part of dx_set_limit. Announces it to all processes.
--
-- Bound: the queued activities of the name. Locks: worker rows by id.
CREATE OR REPLACE FUNCTION dx_limit_activities(p_name text, p_now timestamptz) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_is_shared boolean := dx_no_tag() IS NOT NULL;
BEGIN
  UPDATE worker_queue AS w
  SET limit_name = p_name, limit_key = COALESCE(w.limit_key, ''),
      visible_at = CASE WHEN w.lock_token IS NULL THEN 'infinity' ELSE w.visible_at END
  WHERE w.id = ANY (ARRAY(
    SELECT queued.id
    FROM (SELECT routes.route FROM dx_routes_of_activities() AS routes UNION SELECT * FROM dx_routes_of_sessions())
      AS present (route)
    CROSS JOIN LATERAL (
      SELECT one.id FROM worker_queue AS one
      WHERE one.route = present.route AND one.session_id IS NULL
        AND dx_is_taken(one.route, one.tag, ARRAY[p_name], true, NULL)
        AND NOT (v_is_shared AND one.tag IS NULL)
      UNION ALL
      SELECT one.id FROM worker_queue AS one
      WHERE one.route = present.route AND num_nulls(one.session_id) = 0
        AND dx_is_taken(one.route, one.tag, ARRAY[p_name], true, NULL)
        AND NOT (v_is_shared AND one.tag IS NULL)
    ) AS queued
    WHERE dx_is_served(present.route, ARRAY[p_name], true, NULL)
    ORDER BY queued.id
  ));
  PERFORM dx_notify('worker_work', ARRAY[p_now]);
END
$$;
