-- Trigger: wakes the publishers of the outbox with the commit, once for all messages of a transaction.
CREATE OR REPLACE FUNCTION dx_notify_outbox() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM dx_hint('o');
  RETURN NULL;
END
$$;
