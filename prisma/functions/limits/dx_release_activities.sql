-- Releases the activities that wait for a slot of a limit which was removed. A part of dx_remove_limit. Announces it to
-- all processes.
--
-- Bound: the queued activities of the name. Locks: worker rows by id.
CREATE OR REPLACE FUNCTION dx_release_activities(p_name text, p_now timestamptz) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  UPDATE worker_queue AS w SET visible_at = least(w.created_at, p_now), limit_name = NULL
  WHERE w.id = ANY (ARRAY(
    SELECT parked.id FROM worker_queue AS parked
    WHERE parked.limit_name IS NOT NULL AND parked.visible_at = 'infinity' AND parked.limit_name = p_name
    ORDER BY parked.id
  ));
  PERFORM dx_notify('worker_work', ARRAY[p_now]);
END
$$;
