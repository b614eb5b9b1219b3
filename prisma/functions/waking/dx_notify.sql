-- Notifies listeners that work of a queue becomes visible at these times: the payload is one time in milliseconds since
-- the Unix epoch. The caller leaves it out under `duroxide.quiet = on`, which processes set that announce what they
-- store after the commit: PostgreSQL commits transactions that notify one at a time.
--
-- One notification for each distinct time of a transaction. What is visible already has the time at which the
-- transaction began, so all its statements together make one notification of it. After 16 times only one that is
-- earlier than the others to come is notified: who looks at a time that was notified finds out about the next one
-- (dx_read_next_due).
--
-- It never fails the statement that stores the work: while more than half of the server's queue of notifications is
-- full, it does nothing, and `SET duroxide.notify = off` turns them off, as PREPARE TRANSACTION needs.
--
-- Bound: the times given. Locks: none before the commit.
CREATE OR REPLACE FUNCTION dx_notify(
  p_kind text,                     -- as in dx_channel, of a queue
  p_times timestamptz[]
) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_clock timestamptz := clock_timestamp();
  v_now_ms bigint := floor(extract(epoch FROM now()) * 1000);
  v_channel text := dx_channel(p_kind);
  -- What this transaction has notified. A rollback to a savepoint takes back both.
  v_setting text := 'duroxide.notified_' || md5(v_channel);
  v_known bigint[] := COALESCE(NULLIF(current_setting(v_setting, true), '')::bigint[], '{}');
  v_ms bigint;
BEGIN
  FOR v_ms IN
    SELECT DISTINCT CASE WHEN due.at <= v_clock THEN v_now_ms ELSE ceil(extract(epoch FROM due.at) * 1000)::bigint END
    FROM unnest(p_times) AS due (at) WHERE due.at < 'infinity'
    ORDER BY 1
  LOOP
    CONTINUE WHEN v_ms = ANY (v_known);
    IF cardinality(v_known) >= 16 THEN
      CONTINUE WHEN v_ms > (SELECT min(known.ms) FROM unnest(v_known) AS known (ms) WHERE known.ms > v_now_ms);
      v_known := v_known[:15];
    END IF;
    EXIT WHEN NOT dx_may_notify();
    v_known := v_known || v_ms;
    PERFORM pg_notify(v_channel, v_ms::text);
    PERFORM set_config(v_setting, v_known::text, true);
  END LOOP;
END
$$;
