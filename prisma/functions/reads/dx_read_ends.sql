-- Returns those of the given instances that have ended, with their outcomes, one row each, by id.
--
-- The rows have about p_max_bytes of outcomes, at least one row if an instance has ended. If all of them have
-- out_is_last, no other of the instances has ended. out_failure is as in dx_read_instances.
--
-- Bound: two index lookups per id, whatever the instance has stored; for failed ones also what dx_failure_of reads.
-- Locks: none.
CREATE OR REPLACE FUNCTION dx_read_ends(p_instance_ids text[], p_max_bytes bigint) RETURNS TABLE (
  out_instance_id text,
  out_status text,                 -- Completed or Failed
  out_output text, out_failure text, out_is_last boolean
) LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
BEGIN
  RETURN QUERY
  SELECT part.instance_id, part.status, part.output, part.failure, part.is_last
  FROM (
    SELECT sized.*, max(sized.before) OVER () < p_max_bytes AS is_last
    FROM (
      SELECT ended.*, sum(ended.bytes) OVER (ORDER BY ended.instance_id) - ended.bytes AS before
      FROM (
        SELECT
          i.instance_id, e.status, e.output, e.failure,
          COALESCE(octet_length(e.output), 0) + COALESCE(octet_length(e.failure), 0) AS bytes
        FROM instances AS i
        CROSS JOIN LATERAL (
          SELECT
            e.status, e.output,
            CASE WHEN e.status = 'Failed' THEN dx_failure_of(e.instance_id, e.execution_id) END AS failure
          FROM executions AS e
          WHERE e.instance_id = i.instance_id
            AND e.execution_id = i.current_execution_id
            AND e.status IN ('Completed', 'Failed')
          OFFSET 0 -- a lookup per instance in any plan, and one failure per row, although it is used twice
        ) AS e
        WHERE i.instance_id = ANY (p_instance_ids)
      ) AS ended
    ) AS sized
  ) AS part
  WHERE part.before < p_max_bytes
  ORDER BY part.instance_id;
END
$$;
