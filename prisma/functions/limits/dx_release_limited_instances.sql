-- Lets the instances begin that wait for a slot of a limit which was removed. A part of dx_remove_limit. Announces it
-- to all processes. Those that run keep its name: where it is set again, they count again.
--
-- Bound: the instances that wait, and their messages. Locks: these instances (skip locked; claims release the others),
-- then their messages.
CREATE OR REPLACE FUNCTION dx_release_limited_instances(p_name text, p_now timestamptz) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  PERFORM dx_unpark_instances(
    ARRAY(
      SELECT i.instance_id FROM instances AS i
      WHERE (i.status = 'Running') IS TRUE AND i.limit_route IS NOT NULL AND i.limit_name = p_name
      FOR UPDATE SKIP LOCKED
    ),
    false
  );
  PERFORM dx_notify('orch_work', ARRAY[p_now]);
END
$$;
