-- Stores what turns say of their executions: statuses, outputs, pinned versions. A part of dx_store_turns.
--
-- Returns whether an execution got its row.
-- Bound: the turns. Locks: the rows of these executions, the new ones by instance.
CREATE OR REPLACE FUNCTION dx_store_executions(
  p_turns dx_turn[],
  p_creates boolean,               -- whether the turns were claimed, so that their executions may have no row yet
  p_describes boolean,             -- whether any has a status or a pinned version
  p_texts text[], p_now timestamptz
) RETURNS boolean LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_creates boolean := false;
BEGIN
  IF p_creates THEN
    -- Whether or not the instance has a row.
    INSERT INTO executions (instance_id, execution_id, status, started_at)
    SELECT turn.instance_id, turn.execution_id, 'Running', p_now FROM unnest(p_turns) AS turn
    WHERE turn.execution_id IS NOT NULL
      AND NOT EXISTS (
        SELECT FROM executions AS e
        WHERE e.instance_id = turn.instance_id AND e.execution_id = turn.execution_id
      )
    ORDER BY turn.instance_id COLLATE "C"
    ON CONFLICT (instance_id, execution_id) DO NOTHING;
    v_creates := FOUND;
  END IF;

  IF p_describes THEN
    UPDATE executions AS e
    SET status = COALESCE(turn.status, e.status),
        output = CASE WHEN turn.status IS NULL THEN e.output ELSE COALESCE(turn.output, p_texts[turn.text_at]) END,
        completed_at = CASE
          WHEN turn.status IS NULL THEN e.completed_at
          WHEN turn.status IN ('Completed', 'Failed', 'ContinuedAsNew') THEN p_now
        END,
        duroxide_version_major = COALESCE(turn.major, e.duroxide_version_major),
        duroxide_version_minor = COALESCE(turn.minor, e.duroxide_version_minor),
        duroxide_version_patch = COALESCE(turn.patch, e.duroxide_version_patch)
    FROM unnest(p_turns) AS turn
    WHERE e.instance_id = turn.instance_id
      AND e.execution_id = turn.execution_id
      AND (turn.status IS NOT NULL OR turn.major IS NOT NULL);
  END IF;
  RETURN v_creates;
END
$$;
