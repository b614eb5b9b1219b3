-- Extends locks of activities to now + extend_for_ms. An expired lock becomes live again if no other worker has taken
-- over, so that an outage of the database alone costs no worker its activity. The lock of the session is not extended,
-- but the session counts as active now.
--
-- Returns one outcome per item, in order: Done; LockLost if the token is unknown, superseded or settled, or if the
-- activity was cancelled; Locked if another transaction has locked or just changed the row, which is to be asked again.
-- A wait for it would let the locks of the others run out.
--
-- A worker calls this more often than its lock needs, to learn of a cancellation. A lock that is live for sufficient_ms
-- or longer is only read: with one call a second, 14 of 15 write nothing. The lock of an activity with a session is
-- always extended.
--
-- Bound: the rows given. Locks, without waiting: worker rows by id; then session rows by id (both skip locked).
CREATE OR REPLACE FUNCTION dx_renew_work_item_locks(
  p_items jsonb,                   -- [{token, extend_for_ms, sufficient_ms}]
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_ids bigint[] := '{}';
  v_until_ms bigint[] := '{}';
  v_end_ms bigint;
  v_sessions text[] := '{}';
  v_row record;
  v_previous bigint;
BEGIN
  FOR v_row IN
    SELECT a.position
    FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text, sufficient_ms bigint))
      WITH ORDINALITY AS a (token, sufficient_ms, position)
    CROSS JOIN LATERAL (
      SELECT FROM worker_queue AS w
      WHERE w.id = dx_row_id(a.token)
        AND w.lock_token = split_part(a.token, '.', 2)
        -- CASE leaves the planner no index but that of the ids.
        AND CASE WHEN w.session_id IS NULL THEN w.locked_until - v_now_ms >= a.sufficient_ms ELSE false END
      OFFSET 0
    ) AS activity
  LOOP
    v_outcomes[v_row.position] := 'Done';
  END LOOP;

  FOR v_row IN
    SELECT item.position, v_now_ms + item.extend_for_ms AS until_ms, activity.id, activity.session_id
    FROM (
      SELECT a.*, dx_row_id(a.token) AS id
      FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text, extend_for_ms bigint))
        WITH ORDINALITY AS a (token, extend_for_ms, position)
      WHERE v_outcomes[a.position] = 'LockLost'
      ORDER BY id, a.position DESC -- of two renewals of one lock the last counts
    ) AS item
    CROSS JOIN LATERAL (
      SELECT FROM worker_queue AS w
      WHERE w.id = item.id AND w.lock_token = split_part(item.token, '.', 2)
      OFFSET 0
    ) AS found
    LEFT JOIN LATERAL (
      SELECT w.id, w.session_id FROM worker_queue AS w
      WHERE w.id = item.id AND w.lock_token = split_part(item.token, '.', 2)
      FOR UPDATE SKIP LOCKED
    ) AS activity ON true
  LOOP
    v_outcomes[v_row.position] := CASE WHEN v_row.id IS NULL THEN 'Locked' ELSE 'Done' END;
    CONTINUE WHEN v_row.id IS NULL;
    CONTINUE WHEN v_row.id = v_previous;
    v_previous := v_row.id;
    v_ids := v_ids || v_row.id;
    v_until_ms := v_until_ms || v_row.until_ms;
    IF v_row.session_id IS NOT NULL THEN
      v_sessions := v_sessions || v_row.session_id;
    END IF;
  END LOOP;

  -- As a rule one round: all locks of a process are extended by the same time. Not a plain join: planned while
  -- statistics call the queue empty, it would read all of it.
  FOR v_end_ms IN SELECT DISTINCT item.until_ms FROM unnest(v_until_ms) AS item (until_ms) LOOP
    UPDATE worker_queue AS w SET locked_until = v_end_ms
    WHERE w.id = ANY (ARRAY(
      SELECT item.id FROM unnest(v_ids, v_until_ms) AS item (id, until_ms) WHERE item.until_ms = v_end_ms
    ));
  END LOOP;

  IF v_sessions <> '{}' THEN
    UPDATE sessions AS s SET last_activity_at = v_now_ms
    FROM (
      SELECT active.session_id FROM sessions AS active
      WHERE active.session_id = ANY (v_sessions) AND active.locked_until > v_now_ms
      ORDER BY active.session_id COLLATE "C" FOR NO KEY UPDATE SKIP LOCKED
    ) AS locked
    WHERE s.session_id = locked.session_id;
  END IF;
  RETURN v_outcomes;
END
$$;
