-- Returns the limits and how they are used, by kind and name, as an array: [{kind, name, sinceMs, total, eachKey,
-- inUse, waiting, oldestMs, keyCount, keys: [{key, own, inUse, waiting, oldestMs}]}], each bound {concurrency, rate,
-- rateMs, burst} or null. oldestMs is when the oldest one that waits was stored; of a task, when it could have begun.
--
-- keyCount is the number of keys that have some that wait or have slots. keys are those with limits of their own, and
-- of the others the p_most_keys with the most that wait or have slots. Bound: what waits for these limits or has a slot
-- of them. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_limits(
  p_kind text, p_name text,        -- null: all
  p_key text,                      -- null: as above; else only this key
  p_most_keys integer,
  p_now_ms bigint DEFAULT NULL
) RETURNS json LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
BEGIN
  RETURN (
    SELECT COALESCE(
      json_agg(
        json_build_object(
          'kind', l.kind, 'name', l.name, 'sinceMs', floor(extract(epoch FROM l.since) * 1000)::bigint,
          'total', CASE WHEN num_nonnulls(l.concurrency, l.rate) > 0 THEN json_build_object(
            'concurrency', l.concurrency, 'rate', l.rate, 'rateMs', l.rate_ms, 'burst', l.burst
          ) END,
          'eachKey', CASE WHEN num_nonnulls(l.key_concurrency, l.key_rate) > 0 THEN json_build_object(
            'concurrency', l.key_concurrency, 'rate', l.key_rate, 'rateMs', l.key_rate_ms, 'burst', l.key_burst
          ) END,
          'inUse', used.in_use, 'waiting', used.waiting, 'oldestMs', used.oldest_ms, 'keyCount', used.key_count,
          'keys', used.keys
        )
        ORDER BY l.kind COLLATE "C", l.name COLLATE "C"
      ),
      '[]'
    )
    FROM limits AS l
    CROSS JOIN LATERAL (
      SELECT
        COALESCE(sum(key.in_use), 0)::bigint AS in_use, COALESCE(sum(key.waiting), 0)::bigint AS waiting,
        min(key.oldest_ms) AS oldest_ms, count(*) FILTER (WHERE key.in_use + key.waiting > 0) AS key_count,
        COALESCE(
          json_agg(
            json_build_object(
              'key', key.key, 'own', key.own, 'inUse', key.in_use, 'waiting', key.waiting, 'oldestMs', key.oldest_ms
            )
            ORDER BY key.waiting DESC, key.in_use DESC, key.key COLLATE "C"
          ) FILTER (
            WHERE CASE WHEN p_key IS NOT NULL THEN key.key = p_key ELSE key.own IS NOT NULL OR key.place <= p_most_keys END
          ),
          '[]'
        ) AS keys
      FROM (
        SELECT
          queued.*, own.own,
          row_number() OVER (ORDER BY queued.waiting DESC, queued.in_use DESC, queued.key COLLATE "C") AS place
        FROM (
          SELECT
            each.key, count(*) FILTER (WHERE each.is_parked) AS waiting,
            count(*) FILTER (WHERE NOT each.is_parked) AS in_use,
            floor(extract(epoch FROM min(each.created_at) FILTER (WHERE each.is_parked)) * 1000)::bigint AS oldest_ms
          FROM (
            SELECT w.limit_key AS key, true AS is_parked, w.created_at FROM worker_queue AS w
            WHERE l.kind = 'activity' AND w.limit_name IS NOT NULL AND w.visible_at = 'infinity' AND w.limit_name = l.name
            UNION ALL
            SELECT w.limit_key, false, w.created_at FROM worker_queue AS w
            WHERE l.kind = 'activity' AND w.limit_name IS NOT NULL AND w.visible_at < 'infinity' AND w.limit_name = l.name
            UNION ALL
            SELECT t.limit_key, NOT t.has_slot, greatest(t.run_at, t.created_at) FROM queue_tasks AS t
            WHERE l.kind = 'task' AND t.has_slot IS NOT NULL AND t.name = l.name
              AND (t.has_slot OR t.run_at <= to_timestamp(v_now_ms::float8 / 1000))
            UNION ALL
            -- Those that start later do not wait yet.
            SELECT i.limit_key, true, to_timestamp((i.limit_place >> 20)::float8 / 1000) FROM instances AS i
            WHERE l.kind = 'orchestration' AND i.limit_route IS NOT NULL
              AND (i.status = 'Running') IS TRUE AND i.limit_name = l.name AND i.limit_place >> 20 <= v_now_ms
            UNION ALL
            SELECT i.limit_key, false, i.created_at FROM instances AS i
            WHERE l.kind = 'orchestration' AND i.limit_route IS NULL
              AND (i.status = 'Running') IS TRUE AND i.limit_name = l.name
            UNION ALL
            SELECT k.key, NULL, NULL FROM limit_keys AS k WHERE k.kind = l.kind AND k.name = l.name AND k.is_own
          ) AS each
          GROUP BY each.key
        ) AS queued
        LEFT JOIN LATERAL (
          SELECT json_build_object(
            'concurrency', k.concurrency, 'rate', k.rate, 'rateMs', k.rate_ms, 'burst', k.burst
          ) AS own
          FROM limit_keys AS k WHERE k.kind = l.kind AND k.name = l.name AND k.key = queued.key AND k.is_own
        ) AS own ON true
      ) AS key
    ) AS used
    WHERE (p_kind IS NULL OR l.kind = p_kind) AND (p_name IS NULL OR l.name = p_name)
  );
END
$$;
