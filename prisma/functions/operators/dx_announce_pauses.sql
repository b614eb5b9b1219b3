-- Notifies all processes of this schema to read what is paused. A part of dx_pause and dx_resume. It fails no
-- statement, as dx_notify.
CREATE OR REPLACE FUNCTION dx_announce_pauses() RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF NOT dx_may_notify() THEN
    RETURN;
  END IF;
  PERFORM pg_notify(dx_channel('changes'), '- paused');
END
$$;
