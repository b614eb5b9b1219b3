-- Trigger: notifies listeners of work that another program gave a new time, such as Duroxide, when it gives work back.
CREATE OR REPLACE FUNCTION dx_notify_moved() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM dx_notify(TG_ARGV[0], ARRAY[NEW.visible_at]);
  RETURN NULL;
END
$$;
