-- Trigger: sets the route (name and tag) of an activity that was inserted without one, and notifies listeners; see
-- dx_route_message.
--
-- Bound: the text of the activity. Locks: none.
CREATE OR REPLACE FUNCTION dx_route_activity()
RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  BEGIN
    NEW.route := COALESCE(
      NEW.work_item::jsonb -> 'ActivityExecute' ->> 'name' || COALESCE(' #' || dx_tag(NEW.tag), ''),
      ''
    );
  EXCEPTION
    -- The text is not JSON. An insert must not fail for that.
    WHEN data_exception THEN
      NULL;
  END;
  IF octet_length(NEW.route) + COALESCE(octet_length(NEW.session_id), 0) > 2400 THEN
    -- An index entry holds at most 2,704 bytes. An insert by another program must not fail for that, and no TypeScript
    -- worker serves names this long.
    NEW.route := '';
  END IF;
  IF NEW.lock_token IS NULL AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    PERFORM dx_notify('worker_work', ARRAY[NEW.visible_at]);
  END IF;
  RETURN NEW;
END
$$;
