-- Lets instances that waited for a slot of a limit begin: with a slot, or without a limit. The caller has locked them.
--
-- Bound: the instances given, and their queued messages. Locks: these messages.
CREATE OR REPLACE FUNCTION dx_unpark_instances(
  p_instance_ids text[],
  p_has_slot boolean               -- false: their limit was removed, or they only end
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  UPDATE orchestrator_queue AS q SET route = substr(q.route, 2)
  WHERE q.instance_id = ANY (p_instance_ids)
    AND left(q.route, 1) = '~'; -- not starts_with: found by the instances, whatever the statistics say
  UPDATE instances AS i
  SET route = i.limit_route, limit_route = NULL, limit_name = CASE WHEN p_has_slot THEN i.limit_name END,
      limit_place = CASE WHEN p_has_slot THEN i.limit_place END
  WHERE i.instance_id = ANY (p_instance_ids);
END
$$;
