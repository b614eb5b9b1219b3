-- Decides on visible messages of an instance that waits for a slot of a limit: they wait with the instance, but a
-- cancellation or an interruption lets the instance go at once, without a slot, because it only ends. A part of
-- dx_fetch_orchestration_items.
--
-- Returns Released if it goes, Waits if not; Locked if it has a slot meanwhile, or another transaction has locked it.
-- Bound: the queued messages of the instance. Locks: the instance (skip locked), then these messages.
CREATE OR REPLACE FUNCTION dx_meet_parked(p_instance_id text) RETURNS text LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_route text;
BEGIN
  SELECT i.limit_route INTO v_route FROM instances AS i WHERE i.instance_id = p_instance_id FOR UPDATE SKIP LOCKED;
  IF v_route IS NULL THEN
    -- It has a slot meanwhile, or gets one.
    RETURN 'Locked';
  END IF;
  -- The quotes of a payload are escaped.
  IF EXISTS (
    SELECT FROM orchestrator_queue AS q
    WHERE q.instance_id = p_instance_id
      AND (q.work_item LIKE '{"CancelInstance"%' OR q.work_item ~ '"name": ?"duroxide-prisma/interrupt"')
  ) THEN
    PERFORM dx_unpark_instances(ARRAY[p_instance_id], false);
    RETURN 'Released';
  END IF;
  UPDATE orchestrator_queue AS q SET route = '~' || v_route
  WHERE q.id = ANY (ARRAY(
    SELECT message.id FROM orchestrator_queue AS message
    WHERE message.instance_id = p_instance_id AND NOT starts_with(message.route, '~')
    FOR UPDATE SKIP LOCKED
  ));
  RETURN 'Waits';
END
$$;
