-- Lists the processes that have a row, and whether they live: their session that listens holds the advisory lock of the
-- row or, for those that do not listen, they have written it within three minutes (dx_register_process).
--
-- A standby does not know the locks of its primary: there, a process that listens lives until it is found dead.
-- Bound: the rows of processes, and one look at the locks of the server. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_processes(p_now_ms bigint DEFAULT NULL) RETURNS TABLE (
  out_id uuid, out_build text, out_host text, out_pid integer,
  out_orchestrations text[],       -- name@version
  out_activities text[],
  out_untagged boolean,            -- whether it takes activities without a tag
  out_tags text[],                 -- and with these; null: with any
  out_orchestration_slots integer, -- this and the next: null without a limit
  out_activity_slots integer, out_since_ms bigint, out_seen_ms bigint, out_listens boolean, out_is_alive boolean
) LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_is_standby boolean := pg_is_in_recovery();
BEGIN
  RETURN QUERY
  WITH held AS MATERIALIZED (
    SELECT (l.classid::bigint << 32) | l.objid::bigint AS key
    FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
      AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
  ),
  seen AS (
    SELECT
      p.*,
      CASE
        WHEN NOT p.listens THEN p.seen_at > v_now - interval '3 minutes'
        WHEN v_is_standby THEN p.found_dead_at IS NULL
        ELSE dx_process_key(p.id) IN (SELECT held.key FROM held)
      END AS is_alive
    FROM processes AS p
  )
  SELECT
    s.id, s.build, s.host, s.pid, s.orchestrations, s.activities, s.untagged, s.tags, s.orchestration_slots,
    s.activity_slots, floor(extract(epoch FROM s.since) * 1000)::bigint,
    floor(extract(epoch FROM CASE WHEN s.listens AND s.is_alive THEN v_now ELSE s.seen_at END) * 1000)::bigint,
    s.listens, s.is_alive
  FROM seen AS s
  ORDER BY s.since, s.id;
END
$$;
