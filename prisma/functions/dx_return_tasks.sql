-- Gives back the tasks of a claim whose answer its worker did not get, and which therefore do not run: the attempts do not count.
--
-- Returns their number. A task that another transaction has locked is passed over.
--
-- Bound: the tasks that have not ended, since no index leads from a claim to its tasks: only a worker that lost a connection
-- asks. Locks: the tasks (skip locked), then as dx_fail_tasks.
CREATE OR REPLACE FUNCTION dx_return_tasks(
  p_worker_id text,
  p_claim_id integer,
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS integer
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_items jsonb;
BEGIN
  SELECT jsonb_agg(jsonb_build_object(
    'task_id', one.id, 'attempt', one.attempt, 'outcome', 'GivenBack', 'delay_ms', 0, 'counts', false
  ))
  INTO v_items
  FROM (
    SELECT t.id, t.attempt
    FROM queue_tasks AS t
    WHERE t.look_at IS NOT NULL
      AND t.status = 'Running'
      AND t.worker_id = p_worker_id
      AND t.claim_id = p_claim_id
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS one;
  IF v_items IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM dx_fail_tasks(v_items, p_now_ms);
  RETURN jsonb_array_length(v_items);
END
$$;
