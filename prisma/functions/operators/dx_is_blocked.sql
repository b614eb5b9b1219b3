-- Returns whether a block still holds: no turn has been stored since, of any execution. So storing a turn costs nothing
-- for instances that are not blocked.
--
-- Bound: one index lookup. Locks: none.
CREATE OR REPLACE FUNCTION dx_is_blocked(
  p_block blocked_instances,
  p_execution_id bigint,           -- the current one
  p_created_at timestamptz         -- of the instance
) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
  SELECT p_block.execution_id = p_execution_id
    AND p_block.since >= p_created_at
    AND NOT EXISTS (
      SELECT FROM history AS h
      WHERE h.instance_id = p_block.instance_id AND h.execution_id = p_block.execution_id
        AND h.event_id > p_block.last_event_id
    )
$$;
