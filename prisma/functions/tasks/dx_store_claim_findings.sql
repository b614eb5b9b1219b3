-- Stores what a claim of tasks has found besides those it takes. A part of dx_claim_tasks, which has locked them all.
--
-- Bound: the tasks given. Locks: as dx_announce_task_ends and dx_cancel_tasks; the caller has those of limits.
CREATE OR REPLACE FUNCTION dx_store_claim_findings(
  p_lost uuid[],                   -- their attempts were lost
  p_dead uuid[],                   -- they end, because the last attempt was lost
  p_cancelled uuid[],              -- they end, because their execution has ended
  p_unserved uuid[],               -- they wait for another worker
  p_now_ms bigint
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_freed text[];
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
BEGIN
  IF p_lost <> '{}' THEN
    INSERT INTO queue_task_attempts (task_id, attempt, worker_id, started_at, ended_at, outcome)
    SELECT t.id, t.attempt, t.worker_id, t.started_at, v_now, 'Lost' FROM queue_tasks AS t
    WHERE t.id = ANY (p_lost)
    ON CONFLICT DO NOTHING;
  END IF;
  IF p_unserved <> '{}' THEN
    UPDATE queue_tasks AS t SET unserved_at = v_now WHERE t.id = ANY (p_unserved);
  END IF;
  IF p_dead <> '{}' THEN
    v_freed := ARRAY(SELECT t.name FROM queue_tasks AS t WHERE t.id = ANY (p_dead) AND t.has_slot);
    UPDATE queue_tasks AS t
    SET status = 'Dead', error = '{"_tag":"Lost"}', worker_id = NULL, started_at = NULL, lease_until = NULL,
        heartbeat_at = NULL, look_at = NULL, has_slot = NULL, updated_at = v_now, dead_at = v_now
    WHERE t.id = ANY (p_dead);
    PERFORM dx_announce_task_ends(p_dead, p_now_ms);
    IF v_freed <> '{}' THEN
      PERFORM dx_free_task_slots(v_freed, p_now_ms);
    END IF;
  END IF;
  IF p_cancelled <> '{}' THEN
    PERFORM dx_cancel_tasks(p_cancelled::text[], 'its orchestration has ended', false, p_now_ms);
  END IF;
END
$$;
