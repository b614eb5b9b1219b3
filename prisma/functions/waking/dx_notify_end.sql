-- Trigger: notifies those who wait for the end of an instance, in processes that did not store it. Only for writers
-- that announce nothing themselves; the other conditions are those of dx_notify.
--
-- The payload names the instance by its fingerprint, the first 8 hexadecimal digits of the SHA-256 of its id in UTF-8.
CREATE OR REPLACE FUNCTION dx_notify_end() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF NEW.status NOT IN ('Completed', 'Failed')
    OR current_setting('duroxide.notify', true) = 'off'
    OR pg_notification_queue_usage() > 0.5
  THEN
    RETURN NULL;
  END IF;
  PERFORM pg_notify(
    dx_channel('changes'), '- changed ' || left(encode(sha256(convert_to(NEW.instance_id, 'UTF8')), 'hex'), 8)
  );
  RETURN NULL;
END
$$;
