-- Trigger: deletes the streams of deleted instances, for Duroxide, too.
CREATE OR REPLACE FUNCTION dx_delete_streams() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM dx_delete_streams_of(ARRAY(SELECT gone.instance_id FROM gone));
  RETURN NULL;
END
$$;
