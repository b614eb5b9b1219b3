-- Deletes an instance that has ended, with all its descendants, so that its id is free. A part of dx_start_with_more.
--
-- Does nothing if it has not ended as p_which says, has a parent, has a descendant that has not ended, or has more than
-- 1,000 of them: a start of the id then finds it taken.
--
-- Bound: as dx_delete_instances, of 1,000 instances. Locks: the same.
CREATE OR REPLACE FUNCTION dx_delete_ended(
  p_instance_id text,
  p_which text                     -- Ended: however it has ended; Failed: only if it has failed or was cancelled
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_tree text[] := ARRAY[p_instance_id];
  v_children text[] := v_tree;
  v_deletion record;
BEGIN
  IF (
    SELECT i.parent_instance_id IS NULL AND (
      i.status IN ('Failed', 'Cancelled')
      -- Has ended, too, without a message that continues it.
      OR p_which = 'Ended' AND NOT EXISTS (SELECT FROM dx_running_instances(ARRAY[p_instance_id]))
    )
    FROM instances AS i WHERE i.instance_id = p_instance_id
  ) IS NOT TRUE THEN
    RETURN;
  END IF;
  LOOP
    WHILE v_children <> '{}' LOOP
      v_children := ARRAY(SELECT child.id FROM dx_children_of(v_children) AS child (id) WHERE child.id <> ALL (v_tree));
      v_tree := v_tree || v_children;
      IF cardinality(v_tree) > 1001 THEN
        RETURN;
      END IF;
    END LOOP;
    SELECT d.* INTO v_deletion FROM dx_delete_instances(v_tree, v_tree) AS d;
    -- A child that came meanwhile.
    EXIT WHEN v_deletion.out_child_left_behind IS NULL;
    v_children := v_tree;
  END LOOP;
END
$$;
