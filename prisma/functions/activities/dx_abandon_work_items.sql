-- Abandons claimed activities: they become visible again, at their old time or after a delay.
--
-- With a delay, created_at is never later than now: visible_at <= created_at says that a row is not to wait, and would
-- say it of this one if the clock was set back since it was stored.
--
-- With a block, its instance is blocked (see dx_block_instances); of several activities, by the first.
--
-- Returns one outcome per item, in order: Done, or LockLost if the token is unknown, superseded or settled (of two
-- items with one token, the second). An expired lock that no other worker has taken over can still be abandoned.
-- Bound: the rows given. Locks: worker rows by id; rows of blocked_instances by instance.
CREATE OR REPLACE FUNCTION dx_abandon_work_items(
  p_items jsonb,                   -- [{token, delay_ms, ignore_attempt, block: {reason, problem, eventId, build}}]
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_ids bigint[] := '{}';
  v_visible_ms bigint[] := '{}';
  v_ignores boolean[] := '{}';
  v_blocked text[];
  v_blocks jsonb[];
  v_row record;
  v_previous bigint;
BEGIN
  FOR v_row IN
    SELECT
      item.position, CASE WHEN item.delay_ms > 0 THEN v_now_ms + item.delay_ms END AS visible_at_ms,
      item.ignore_attempt, activity.id
    FROM (
      SELECT a.*, dx_row_id(a.token) AS id
      FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text, delay_ms bigint, ignore_attempt boolean))
        WITH ORDINALITY AS a (token, delay_ms, ignore_attempt, position)
      ORDER BY id, a.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT w.id FROM worker_queue AS w
      WHERE w.id = item.id AND w.lock_token = split_part(item.token, '.', 2)
      FOR UPDATE
    ) AS activity
  LOOP
    CONTINUE WHEN v_row.id = v_previous;
    v_previous := v_row.id;
    v_outcomes[v_row.position] := 'Done';
    v_ids := v_ids || v_row.id;
    v_visible_ms := v_visible_ms || v_row.visible_at_ms;
    v_ignores := v_ignores || v_row.ignore_attempt;
  END LOOP;

  UPDATE worker_queue AS w
  SET lock_token = NULL, locked_until = NULL,
      (visible_at, created_at, attempt_count) = (
        SELECT
          CASE WHEN v_visible_ms[item.at] IS NULL THEN w.visible_at ELSE dx_time_of(v_visible_ms[item.at]) END,
          CASE
            WHEN v_visible_ms[item.at] IS NULL THEN w.created_at
            ELSE least(w.created_at, to_timestamp(v_now_ms::float8 / 1000))
          END,
          CASE WHEN v_ignores[item.at] THEN greatest(w.attempt_count - 1, 0) ELSE w.attempt_count END
        FROM (SELECT array_position(v_ids, w.id) AS at OFFSET 0) AS item
      )
  -- Not a plain join: planned while statistics call the queue empty, it would read all of it.
  WHERE w.id = ANY (v_ids);

  IF p_items @? '$[*].block' THEN
    SELECT array_agg(blocked.instance_id), array_agg(blocked.block)
    INTO v_blocked, v_blocks
    FROM (
      SELECT DISTINCT ON (w.instance_id COLLATE "C") w.instance_id, item.value -> 'block' AS block
      FROM jsonb_array_elements(p_items) WITH ORDINALITY AS item (value, position)
      CROSS JOIN LATERAL (
        SELECT x.instance_id FROM worker_queue AS x WHERE x.id = dx_row_id(item.value ->> 'token')
        OFFSET 0
      ) AS w
      WHERE item.value ? 'block' AND v_outcomes[item.position] = 'Done'
      ORDER BY w.instance_id COLLATE "C", item.position
    ) AS blocked;
    PERFORM dx_block_instances(v_blocked, v_blocks, v_now_ms);
  END IF;
  RETURN v_outcomes;
END
$$;
