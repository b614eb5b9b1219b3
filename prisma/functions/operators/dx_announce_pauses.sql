-- Notifies all processes of this schema to read what is paused. A part of dx_pause and dx_resume. It fails no
-- statement, as dx_notify.
CREATE OR REPLACE FUNCTION dx_announce_pauses() RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF current_setting('duroxide.notify', true) = 'off' OR pg_notification_queue_usage() > 0.5 THEN
    RETURN;
  END IF;
  PERFORM pg_notify(dx_channel('changes'), '- paused');
END
$$;
