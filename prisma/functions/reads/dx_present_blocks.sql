-- Lists the blocks that hold, with the orchestrations of their instances.
--
-- Bound: the rows of blocked_instances, with two index lookups each, in any plan. Locks: none. PostgreSQL puts it into
-- the statement that calls it.
CREATE OR REPLACE FUNCTION dx_present_blocks() RETURNS TABLE (
  instance_id text, execution_id bigint, event_id bigint, orchestration_name text
) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT b.instance_id, b.execution_id, b.event_id, i.orchestration_name
  FROM (SELECT x.* FROM blocked_instances AS x ORDER BY x.instance_id) AS b
  CROSS JOIN LATERAL (
    SELECT x.current_execution_id, x.created_at, x.orchestration_name FROM instances AS x
    WHERE x.instance_id = b.instance_id
    OFFSET 0
  ) AS i
  WHERE dx_is_blocked(b, i.current_execution_id, i.created_at)
$$;
