-- Creates the tasks of the instants of a cron trigger that are due, and notes up to which time it has fired: both or
-- neither, and once, however many processes have found them due. The time never moves back.
--
-- Returns the tasks, [{out_id, out_is_new}], in order; null, and changes nothing, if the trigger has fired since
-- p_after_ms.
-- Bound: the tasks given. Locks: the row of the trigger, then those of dx_create_tasks.
CREATE OR REPLACE FUNCTION dx_fire_trigger(
  p_name text,
  p_after_ms bigint,               -- up to when it had fired; null: it never had
  p_until_ms bigint,               -- up to when the tasks are all of its instants
  p_tasks jsonb                    -- as for dx_create_tasks
) RETURNS json LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_until timestamptz := to_timestamp(p_until_ms::float8 / 1000);
BEGIN
  IF p_after_ms IS NULL THEN
    INSERT INTO queue_triggers (name, fired_until) VALUES (p_name, v_until) ON CONFLICT DO NOTHING;
  ELSE
    UPDATE queue_triggers AS t SET fired_until = greatest(t.fired_until, v_until)
    WHERE t.name = p_name AND round(extract(epoch FROM t.fired_until) * 1000) = p_after_ms;
  END IF;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  RETURN COALESCE(
    (
      SELECT json_agg(task ORDER BY position)
      FROM ROWS FROM (dx_create_tasks(p_tasks)) WITH ORDINALITY AS task (out_id, out_is_new, position)
    ),
    '[]'
  );
END
$$;
