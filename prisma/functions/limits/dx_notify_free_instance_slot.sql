-- Trigger: when an instance that has a slot of a limit ends or is deleted, notifies listeners, if another one waits for
-- that limit. For our own statements as well: few instances end while others wait.
CREATE OR REPLACE FUNCTION dx_notify_free_instance_slot() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
BEGIN
  -- Apart, as in dx_notify_free_slot.
  IF OLD.limit_route IS NOT NULL OR OLD.status <> 'Running' OR (TG_OP = 'UPDATE' AND NEW.status = 'Running') THEN
    RETURN NULL;
  END IF;
  IF EXISTS (
    SELECT FROM instances AS i
    WHERE (i.status = 'Running') IS TRUE AND i.limit_route IS NOT NULL AND i.limit_name = OLD.limit_name
  ) THEN
    PERFORM dx_notify('orch_work', ARRAY[now()]);
  END IF;
  RETURN NULL;
END
$$;
