-- Trigger: notifies listeners that a slot of a limit is free, if an activity waits for one. Processes of this package
-- announce slots that their own statements free.
CREATE OR REPLACE FUNCTION dx_notify_free_slot() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
    AND OLD.visible_at < 'infinity'
    AND EXISTS (SELECT FROM worker_queue AS w WHERE w.limit_name = OLD.limit_name AND w.visible_at = 'infinity')
  THEN
    PERFORM dx_notify('worker_work', ARRAY[now()]);
  END IF;
  RETURN NULL;
END
$$;
