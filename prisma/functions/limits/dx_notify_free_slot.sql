-- Trigger: notifies listeners that a slot of a limit is free, if an activity waits for one. Quiet statements are left
-- out: processes of this package announce the slots that these free.
CREATE OR REPLACE FUNCTION dx_notify_free_slot() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
BEGIN
  -- In an IF of its own: PL/pgSQL runs a condition with a query as one, even where a comparison decides.
  IF current_setting('duroxide.quiet', true) = 'on' OR OLD.visible_at = 'infinity' THEN
    RETURN NULL;
  END IF;
  IF EXISTS (
    SELECT FROM worker_queue AS w WHERE w.limit_name = OLD.limit_name AND w.visible_at = 'infinity'
  ) THEN
    PERFORM dx_notify('worker_work', ARRAY[now()]);
  END IF;
  RETURN NULL;
END
$$;
