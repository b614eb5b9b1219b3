-- Finds what no wake-up announces: attempts whose lease has ended because their worker is gone, and tasks that should
-- have begun and whose wake-up may be lost. Each gets a new row of the outbox.
--
-- A task that waits because all workers are busy is looked at after pauses that grow with its age, and only the first
-- p_wakeups of such tasks get a wake-up from one sweep. The next look at a task moves with this one, so any number of
-- sweeps at the same time write one wake-up for it.
--
-- Tasks that wait for a slot of a limit need no wake-up of their own. A limit whose tasks wait although it has room
-- gets one: the end of an attempt was announced by none, such as that of a worker that has died.
--
-- With p_names, tasks of these names that no worker had served p_served_ms ago count as tasks that wait and need a
-- look. Those that another worker has met since then are taken by dx_take_tasks, or come as they are given back.
--
-- Returns one row: how many attempts were lost, how many waiting tasks were woken, whether there is more to sweep,
-- whether tasks of p_names are left, such as those that another transaction holds, when the next task needs a look
-- (null: none), and counts of the tasks that have not ended, of the p_limit that need a look first.
-- Bound: p_limit rows, three times; of limits whose tasks wait, the tasks that run. Locks: the tasks (skip locked).
CREATE OR REPLACE FUNCTION dx_sweep_tasks(
  p_limit integer,                 -- rows, >= 1
  p_wakeups integer,               -- most tasks that wait and get a wake-up
  p_names text[] DEFAULT NULL,     -- that a worker serves
  p_served_ms bigint DEFAULT 0,    -- since when, milliseconds before now
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_lost integer, out_woken integer, out_is_full boolean, out_has_unserved boolean,
  out_next_ms bigint,              -- milliseconds from now
  out_pending bigint, out_running bigint, out_dead bigint,
  out_oldest_age_ms bigint         -- since the oldest task that waits could have begun; 0 without one
) LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_begin timestamptz := to_timestamp((v_now_ms - p_served_ms)::float8 / 1000);
  v_ids uuid[];
  v_limit record;
  v_limits text[] := ARRAY(
    SELECT l.name FROM limits AS l WHERE l.kind = 'task' AND l.has_waiting
    ORDER BY l.name COLLATE "C"
  );
BEGIN
  IF p_names IS NOT NULL THEN
    v_ids := ARRAY(
      SELECT t.id FROM queue_tasks AS t
      WHERE t.unserved_at <= v_begin AND t.name = ANY (p_names)
      LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    );
    UPDATE queue_tasks AS t
    SET unserved_at = NULL, look_at = CASE WHEN t.status = 'Pending' THEN v_now ELSE t.look_at END
    WHERE t.id = ANY (v_ids);
  END IF;
  out_has_unserved := p_names IS NOT NULL AND EXISTS (
    SELECT FROM queue_tasks AS t
    WHERE t.unserved_at <= v_begin AND t.name = ANY (p_names)
  );

  v_ids := ARRAY(
    SELECT t.id FROM queue_tasks AS t
    WHERE t.look_at IS NOT NULL AND t.look_at <= v_now
    ORDER BY t.look_at LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
  );

  WITH looked AS (
    SELECT
      t.id, t.status = 'Running' AND t.lease_until <= v_now_ms AS is_lost,
      t.status = 'Pending' AND t.run_at <= v_now
        AND (num_nulls(t.has_slot) = 1 OR t.lost >= 2 OR t.name <> ALL (v_limits)) AS is_waiting,
      CASE
        -- Renewals do not move the time of the look.
        WHEN t.status = 'Running' AND t.lease_until > v_now_ms THEN to_timestamp((t.lease_until + 500)::float8 / 1000)
        WHEN t.status = 'Pending' AND t.run_at > v_now THEN t.run_at + interval '30 seconds'
        ELSE v_now
          + least(greatest(interval '30 seconds', v_now - greatest(t.run_at, v_now - interval '1 hour')), interval '1 hour')
      END AS next_look_at,
      t.look_at
    FROM queue_tasks AS t WHERE t.id = ANY (v_ids)
  ),
  placed AS (
    SELECT looked.*, row_number() OVER (PARTITION BY looked.is_waiting ORDER BY looked.look_at) AS place FROM looked
  ),
  moved AS (
    UPDATE queue_tasks AS t SET look_at = placed.next_look_at
    FROM placed WHERE t.id = placed.id
    RETURNING t.id, t.queue, t.wakeup, placed.is_lost, placed.is_waiting, placed.place
  ),
  woken AS (
    INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
    SELECT moved.queue, dx_wakeup_of(moved.id, moved.wakeup), v_now, v_now
    FROM moved WHERE moved.is_lost OR (moved.is_waiting AND moved.place <= p_wakeups)
  )
  SELECT
    count(*) FILTER (WHERE moved.is_lost),
    count(*) FILTER (WHERE moved.is_waiting AND moved.place <= p_wakeups), cardinality(v_ids) >= p_limit
  INTO out_lost, out_woken, out_is_full
  FROM moved;

  FOR v_limit IN
    SELECT l.name, l.last_key FROM limits AS l
    WHERE l.kind = 'task'
      AND l.name = ANY (v_limits)
      AND COALESCE(l.next_ms, 0) <= v_now_ms
      AND COALESCE(
        l.concurrency > (
          SELECT count(*) FROM queue_tasks AS t
          WHERE t.has_slot IS NOT NULL AND t.name = l.name AND t.has_slot
        ),
        true
      )
    ORDER BY l.name COLLATE "C"
  LOOP
    IF dx_wake_limited_task(v_limit.name, 1, v_limit.last_key, v_now_ms, v_now_ms) THEN
      out_woken := out_woken + 1;
    END IF;
  END LOOP;

  SELECT ceil(extract(epoch FROM t.look_at) * 1000)::bigint - v_now_ms INTO out_next_ms
  FROM queue_tasks AS t
  WHERE t.look_at < 'infinity' -- never
  ORDER BY t.look_at LIMIT 1;

  SELECT
    count(*) FILTER (WHERE open.status = 'Pending'), count(*) FILTER (WHERE open.status = 'Running'),
    COALESCE(
      v_now_ms - floor(extract(epoch FROM
        min(greatest(open.run_at, 'epoch')) FILTER (WHERE open.status = 'Pending' AND open.run_at <= v_now)
      ) * 1000)::bigint,
      0
    )
  INTO out_pending, out_running, out_oldest_age_ms
  FROM (
    SELECT t.status, t.run_at FROM queue_tasks AS t
    WHERE t.look_at IS NOT NULL
    ORDER BY t.look_at LIMIT p_limit
  ) AS open;
  SELECT count(*) INTO out_dead
  FROM (SELECT FROM queue_tasks AS t WHERE t.dead_at IS NOT NULL ORDER BY t.dead_at LIMIT p_limit) AS dead;
  RETURN NEXT;
END
$$;
