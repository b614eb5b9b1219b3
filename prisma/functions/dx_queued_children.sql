-- Ids of instances whose start is queued by one of these parents.
--
-- Bound: one pass over the orchestrator queue. Locks: none.
CREATE OR REPLACE FUNCTION dx_queued_children(
  p_parent_ids text[]
)
RETURNS SETOF text
LANGUAGE plpgsql
STABLE
SET search_path FROM CURRENT
SET jit = off
-- A pass over the table, not over an index of it, also when the caller's settings avoid that.
SET enable_seqscan = on
AS $$
BEGIN
  RETURN QUERY
  SELECT q.instance_id
  FROM orchestrator_queue AS q
  WHERE q.work_item LIKE '{"StartOrchestration"%'
    -- As text: a message nobody can read must not fail this. Inside a payload the quotes would be escaped.
    AND substring(q.work_item FROM '"parent_instance": ?("(?:[^"\\]|\\.)*")') = ANY (
      SELECT to_json(parent.id)::text
      FROM unnest(p_parent_ids) AS parent (id)
    );
END
$$;
