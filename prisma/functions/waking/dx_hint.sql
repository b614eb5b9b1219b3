-- Sends a hint to those who wait for a topic of queues, outbox, tasks or schedules. src/waking/Topics.ts says what
-- topics there are. Equal hints of a transaction are one.
--
-- The caller leaves it out under `duroxide.quiet = on`. It fails no statement, as dx_notify.
CREATE OR REPLACE FUNCTION dx_hint(
  p_topic text,                    -- such as `o`
  p_at timestamptz DEFAULT NULL    -- when to look; null or past: now
) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF NOT dx_may_notify() THEN
    RETURN;
  END IF;
  PERFORM pg_notify(
    dx_channel('queues'),
    p_topic || CASE
      WHEN p_at > clock_timestamp() AND p_at < 'infinity' THEN ' @' || ceil(extract(epoch FROM p_at) * 1000)::bigint
      ELSE ''
    END
  );
END
$$;
