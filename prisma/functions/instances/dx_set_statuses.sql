-- Sets the statuses of instances whose executions were written without the trigger dx_set_status: before it was there,
-- or by an import.
--
-- Bound: the ids given. Locks: their instance rows where the status changes, by id.
CREATE OR REPLACE FUNCTION dx_set_statuses(p_instance_ids text[]) RETURNS void LANGUAGE plpgsql
-- settings of the hot path
AS $$
BEGIN
  UPDATE instances AS i SET status = wrong.status
  FROM (
    SELECT given.instance_id, dx_status(e.status, e.output) AS status
    FROM unnest(p_instance_ids) AS given (instance_id)
    JOIN instances AS old ON old.instance_id = given.instance_id
    JOIN executions AS e ON e.instance_id = old.instance_id AND e.execution_id = old.current_execution_id
    WHERE old.status <> dx_status(e.status, e.output)
    ORDER BY given.instance_id COLLATE "C"
  ) AS wrong
  WHERE i.instance_id = wrong.instance_id;
END
$$;
