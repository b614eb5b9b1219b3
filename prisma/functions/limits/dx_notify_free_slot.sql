-- Trigger: notifies listeners that a slot of a limit is free, if an activity waits for one.
CREATE OR REPLACE FUNCTION dx_notify_free_slot() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF EXISTS (
    SELECT FROM worker_queue AS w WHERE w.limit_name = OLD.limit_name AND w.visible_at = 'infinity'
  ) THEN
    PERFORM dx_notify('worker_work', ARRAY[now()]);
  END IF;
  RETURN NULL;
END
$$;
