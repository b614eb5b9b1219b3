-- Trigger: notifies listeners when rows of a queue become visible, in milliseconds since the Unix epoch: after an insert,
-- and after an update that gives a row a new time. Only for writers that announce nothing themselves: Duroxide, plain
-- SQL, transactions of an application. The triggers leave out statements with `duroxide.quiet = on`.
--
-- One notification for each distinct time. What is visible already has the time at which the transaction began, so all its
-- statements together make one notification of it. Of more than 16 times the first two are enough, the present among
-- them if it is one: who looks at a time that was announced finds out about the next one (dx_read_next_due).
--
-- Not for rows that are claimed already, nor for messages to instances that Duroxide runs, which only its processes take.
--
-- The insert never fails for a notification: while more than half of the server's queue of notifications is full, there
-- are none, and `SET duroxide.notify = off` turns them off, as PREPARE TRANSACTION needs.
--
-- Bound: one pass over the rows of the statement. Locks: PostgreSQL serializes the commits that notify.
CREATE OR REPLACE FUNCTION dx_notify_work()
RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_clock timestamptz := clock_timestamp();
  v_times timestamptz[];
BEGIN
  IF current_setting('duroxide.notify', true) = 'off' OR pg_notification_queue_usage() > 0.5 THEN
    RETURN NULL;
  END IF;
  IF TG_OP = 'UPDATE' THEN
    v_times := ARRAY[NEW.visible_at];
  ELSE
    SELECT array_agg(one.visible_at ORDER BY one.visible_at)
    INTO v_times
    FROM (
      SELECT DISTINCT CASE WHEN added.visible_at <= v_clock THEN now() ELSE added.visible_at END AS visible_at
      FROM added
      WHERE added.lock_token IS NULL
        AND added.visible_at < 'infinity'
        AND NOT (TG_RELNAME = 'orchestrator_queue' AND starts_with(added.route, '0.'))
    ) AS one;
  END IF;
  PERFORM pg_notify(
    dx_channel(TG_ARGV[0]),
    CASE
      WHEN one.visible_at <= v_clock THEN floor(extract(epoch FROM now()) * 1000)
      ELSE ceil(extract(epoch FROM one.visible_at) * 1000)
    END::bigint::text
  )
  FROM unnest(v_times[:CASE WHEN cardinality(v_times) > 16 THEN 2 ELSE 16 END]) AS one (visible_at);
  RETURN NULL;
END
$$;
