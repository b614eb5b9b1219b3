-- Returns the OrchestrationFailed event that ended a failed execution, or null if no event ended it.
--
-- It is the last event, except that one …CancelRequested event may follow for each activity that was open at that time.
--
-- Bound: the events after the failure, read backwards from the last. Locks: none.
CREATE OR REPLACE FUNCTION dx_failure_of(p_instance_id text, p_execution_id bigint) RETURNS text
LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
BEGIN
  RETURN (
    SELECT CASE WHEN ended.event_data ~ '"type": ?"OrchestrationFailed"' THEN ended.event_data END
    FROM (
      SELECT h.event_data FROM history AS h
      WHERE h.instance_id = p_instance_id
        AND h.execution_id = p_execution_id
        -- Quotes inside a payload are escaped, so this is the type of the event itself, in compact or spaced JSON.
        AND h.event_data !~ '"type": ?"[A-Za-z]+CancelRequested"'
      ORDER BY h.event_id DESC LIMIT 1
    ) AS ended
  );
END
$$;
