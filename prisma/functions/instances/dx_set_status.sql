-- Trigger: sets the status of an instance whose execution was written by a statement that is not quiet. If the
-- execution has ended, notifies those who wait for the end. Quiet statements set the status themselves, and their
-- process announces the end after the commit.
--
-- An earlier execution does not change the status. The payload names the instance by its fingerprint: the first 8
-- hexadecimal digits of the SHA-256 of its id in UTF-8. The other conditions of the notification are those of
-- dx_notify.
CREATE OR REPLACE FUNCTION dx_set_status() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  -- Asked here for the trigger on inserts, whose condition does not ask.
  IF current_setting('duroxide.quiet', true) = 'on' THEN
    RETURN NULL;
  END IF;
  UPDATE instances AS i SET status = dx_status(NEW.status, NEW.output)
  WHERE i.instance_id = NEW.instance_id
    AND i.current_execution_id <= NEW.execution_id
    AND i.status <> dx_status(NEW.status, NEW.output);
  IF NEW.status IN ('Completed', 'Failed') AND dx_may_notify() THEN
    PERFORM pg_notify(
      dx_channel('changes'), '- changed ' || left(encode(sha256(convert_to(NEW.instance_id, 'UTF8')), 'hex'), 8)
    );
  END IF;
  RETURN NULL;
END
$$;
