-- Writes wake-ups of a task that waits for a slot of its limit: each stands for any task of its name.
--
-- Returns whether one waits; null if it has not found one among 1,000 keys.
-- Bound: 1,000 keys. Locks: none.
CREATE OR REPLACE FUNCTION dx_wake_limited_task(
  p_name text, p_count bigint,
  p_key text,                      -- that was served last: it looks behind it first
  p_now_ms bigint,
  p_at_ms bigint                   -- when they are delivered
) RETURNS boolean LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_key text := p_key;
  v_at timestamptz := 'infinity';
  v_has_wrapped boolean := false;
  v_next record;
BEGIN
  FOR v_visit IN 1 .. 1000 LOOP
    SELECT t.limit_key, t.run_at, t.id, t.queue, t.wakeup INTO v_next FROM queue_tasks AS t
    WHERE t.has_slot IS NOT NULL
      AND t.name = p_name
      AND NOT t.has_slot
      AND (t.limit_key, t.run_at) > (v_key, v_at)
      AND t.lost < 2
    ORDER BY t.limit_key, t.run_at, t.id LIMIT 1;
    IF NOT FOUND THEN
      IF v_has_wrapped THEN
        RETURN false;
      END IF;
      v_has_wrapped := true;
      v_key := '';
      v_at := '-infinity';
      CONTINUE;
    END IF;
    v_key := v_next.limit_key;
    v_at := 'infinity';
    IF v_next.run_at <= v_now THEN
      INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
      SELECT v_next.queue, dx_wakeup_of(v_next.id, v_next.wakeup), v_now, to_timestamp(p_at_ms::float8 / 1000)
      FROM generate_series(1, p_count);
      RETURN true;
    END IF;
  END LOOP;
  RETURN NULL;
END
$$;
