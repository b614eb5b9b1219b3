-- Trigger: sets the status of an instance whose execution another program has written. Our functions set it themselves.
--
-- An earlier execution changes nothing.
CREATE OR REPLACE FUNCTION dx_set_status() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  -- A new execution runs, as its instance did before.
  IF TG_OP = 'INSERT' AND NEW.status = 'Running' THEN
    RETURN NULL;
  END IF;
  UPDATE instances AS i SET status = dx_status(NEW.status, NEW.output)
  WHERE i.instance_id = NEW.instance_id
    AND i.current_execution_id <= NEW.execution_id
    AND i.status <> dx_status(NEW.status, NEW.output);
  RETURN NULL;
END
$$;
