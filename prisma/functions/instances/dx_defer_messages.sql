-- Takes single messages out of claimed batches and hides them for the delay: messages this version cannot read must
-- neither block their instance nor be lost. The delivery is not counted; the lock and the rest of the batch do not
-- change. As in dx_abandon_work_items, created_at is never later than now.
--
-- Returns one outcome per item, in order: Done, or LockLost if the token is unknown, superseded or settled. Ids that do
-- not belong to the batch are ignored.
-- Bound: the messages given. Locks: instance locks by instance; the given queue rows.
CREATE OR REPLACE FUNCTION dx_defer_messages(
  p_items jsonb,                   -- [{token, ids: [row id], delay_ms}]
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_lock record;
BEGIN
  FOR v_lock IN
    SELECT a.position, a.ids, v_now_ms + a.delay_ms AS visible_at_ms, l.instance_id, l.lock_token
    FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text, ids bigint[], delay_ms bigint))
      WITH ORDINALITY AS a (token, ids, delay_ms, position)
    JOIN instance_locks AS l ON l.instance_id = substr(a.token, 38)
    WHERE l.lock_token = left(a.token, 36)
    ORDER BY l.instance_id COLLATE "C", a.position FOR UPDATE OF l
  LOOP
    v_outcomes[v_lock.position] := 'Done';
    UPDATE orchestrator_queue AS q
    SET lock_token = NULL, locked_until = NULL, attempt_count = greatest(q.attempt_count - 1, 0),
        visible_at = dx_time_of(v_lock.visible_at_ms),
        created_at = least(q.created_at, to_timestamp(v_now_ms::float8 / 1000))
    WHERE q.id = ANY (v_lock.ids)
      AND q.instance_id IS NOT DISTINCT FROM v_lock.instance_id -- not "=": found by id, whatever the statistics say
      AND q.lock_token = v_lock.lock_token;
  END LOOP;
  RETURN v_outcomes;
END
$$;
