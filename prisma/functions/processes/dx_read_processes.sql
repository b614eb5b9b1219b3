-- Lists the processes that have a row, and whether they live: their session that listens holds the advisory lock of the
-- row or, for those that do not listen, they have written it within three minutes (dx_register_process).
--
-- A standby does not know the locks of its primary: there, a process that listens lives until it is found dead.
--
-- The slots in use of a process that listens are in the text of its heartbeats, which this role may see of its own
-- sessions or as a member of pg_read_all_stats. Else they are those of the last write, in the last three minutes.
-- Bound: the rows of processes, and one look at the locks and the sessions of the server. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_processes(p_now_ms bigint DEFAULT NULL) RETURNS TABLE (
  out_id uuid, out_build text, out_host text, out_pid integer,
  out_orchestrations text[],       -- name@version
  out_activities text[],
  out_untagged boolean,            -- whether it takes activities without a tag
  out_tags text[],                 -- and with these; null: with any
  out_orchestration_slots integer, -- this and the next: null without a limit
  out_activity_slots integer, out_since_ms bigint, out_seen_ms bigint, out_listens boolean, out_is_alive boolean,
  out_orchestrations_in_use integer, out_activities_in_use integer,
  out_in_use_ms bigint             -- when it said these two; null where that is not known
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
    SELECT (l.classid::bigint << 32) | l.objid::bigint AS key, l.pid
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
  ),
  said AS (
    SELECT DISTINCT ON (a.id) a.id, a.words[1]::integer AS orchestrations, a.words[2]::integer AS activities, a.said_at
    FROM (
      SELECT s.id, b.query_start AS said_at, regexp_match(b.query, ' ' || held.key || '=([0-9]+)/([0-9]+)') AS words
      FROM seen AS s
      JOIN held ON held.key = dx_process_key(s.id)
      JOIN pg_stat_activity AS b ON b.pid = held.pid
      WHERE s.listens
    ) AS a
    WHERE a.words IS NOT NULL
    ORDER BY a.id, a.said_at DESC
  ),
  used AS (
    SELECT
      s.id, COALESCE(d.orchestrations, s.orchestrations_in_use) AS orchestrations,
      COALESCE(d.activities, s.activities_in_use) AS activities, COALESCE(d.said_at, s.seen_at) AS said_at
    FROM seen AS s
    LEFT JOIN said AS d ON d.id = s.id
    WHERE s.is_alive AND (d.id IS NOT NULL OR s.orchestrations_in_use IS NOT NULL)
      AND COALESCE(d.said_at, s.seen_at) > v_now - interval '3 minutes'
  )
  SELECT
    s.id, s.build, s.host, s.pid, s.orchestrations, s.activities, s.untagged, s.tags, s.orchestration_slots,
    s.activity_slots, floor(extract(epoch FROM s.since) * 1000)::bigint,
    floor(extract(epoch FROM CASE WHEN s.listens AND s.is_alive THEN v_now ELSE s.seen_at END) * 1000)::bigint,
    s.listens, s.is_alive, u.orchestrations, u.activities, floor(extract(epoch FROM u.said_at) * 1000)::bigint
  FROM seen AS s
  LEFT JOIN used AS u ON u.id = s.id
  ORDER BY s.since, s.id;
END
$$;
