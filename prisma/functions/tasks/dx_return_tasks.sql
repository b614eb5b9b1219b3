-- Gives back the tasks of claims whose answers their worker did not get, and which therefore do not run: the attempts
-- do not count.
--
-- Returns the claims that had taken some and now hold none. A task that another transaction has locked is passed over:
-- its worker asks again for its claim.
-- Bound: the tasks that have not ended, since no index leads from a claim to its tasks: only a worker that lost a
-- connection asks. Locks: the tasks (skip locked), then as dx_fail_tasks.
CREATE OR REPLACE FUNCTION dx_return_tasks(
  p_worker_id text, p_claim_ids integer[], p_now_ms bigint DEFAULT NULL
) RETURNS integer[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_items jsonb;
  v_claims integer[];
BEGIN
  SELECT
    jsonb_agg(jsonb_build_object(
      'task_id', task.id, 'attempt', task.attempt, 'outcome', 'GivenBack', 'delay_ms', 0, 'counts', false
    )),
    array_agg(DISTINCT task.claim_id)
  INTO v_items, v_claims
  FROM (
    SELECT t.id, t.attempt, t.claim_id FROM queue_tasks AS t
    WHERE t.look_at IS NOT NULL
      AND t.status = 'Running'
      AND t.worker_id = p_worker_id
      AND t.claim_id = ANY (p_claim_ids)
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS task;
  IF v_items IS NULL THEN
    RETURN '{}';
  END IF;
  PERFORM dx_fail_tasks(v_items, p_now_ms);
  RETURN ARRAY(
    SELECT claim.id FROM unnest(v_claims) AS claim (id)
    WHERE NOT EXISTS (
      SELECT FROM queue_tasks AS t
      WHERE t.look_at IS NOT NULL
        AND t.status = 'Running'
        AND t.worker_id = p_worker_id
        AND t.claim_id = claim.id
    )
  );
END
$$;
