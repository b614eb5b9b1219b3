-- Trigger: notifies listeners that a slot of a limit of orchestrations is free, if an instance waits for one: one that
-- has it ends or is deleted, by whomever. Our own statements as well: few instances end while others wait.
CREATE OR REPLACE FUNCTION dx_notify_free_instance_slot() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF OLD.limit_route IS NULL
    AND OLD.status = 'Running'
    AND (TG_OP = 'DELETE' OR NEW.status <> 'Running')
    AND EXISTS (SELECT FROM instances AS i WHERE i.limit_route IS NOT NULL AND i.limit_name = OLD.limit_name)
  THEN
    PERFORM dx_notify('orch_work', ARRAY[now()]);
  END IF;
  RETURN NULL;
END
$$;
