-- Trigger: sets the route (name and tag) of an activity that was inserted without one, and notifies listeners; see
-- dx_route_message.
CREATE OR REPLACE FUNCTION dx_route_activity() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  NEW.route := dx_activity_route(NEW.work_item, NEW.tag, NEW.session_id);
  IF NEW.lock_token IS NULL AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    PERFORM dx_notify('worker_work', ARRAY[NEW.visible_at]);
  END IF;
  RETURN NEW;
END
$$;
