-- Notes why these instances do not continue, and where they are: a block holds while they stay there. An instance is
-- given once; one without a row of instances, whose start is still queued, has no block.
--
-- Bound: one look at the end of each history. Locks: rows of blocked_instances by instance.
CREATE OR REPLACE FUNCTION dx_block_instances(
  p_instance_ids text[],
  p_blocks jsonb[],                -- {reason, problem, eventId, build}
  p_now_ms bigint
) RETURNS void LANGUAGE plpgsql
-- settings of the hot path
AS $$
BEGIN
  IF p_instance_ids = '{}' THEN
    RETURN;
  END IF;
  INSERT INTO blocked_instances AS b (
    instance_id, execution_id, last_event_id, reason, problem, event_id, build, since, tried_at, tries
  )
  SELECT
    i.instance_id, i.current_execution_id, COALESCE(last.event_id, 0), a.block ->> 'reason', a.block ->> 'problem',
    (a.block ->> 'eventId')::bigint, a.block ->> 'build', now.at, now.at, 1
  FROM unnest(p_instance_ids, p_blocks) AS a (instance_id, block)
  CROSS JOIN (SELECT to_timestamp(p_now_ms::float8 / 1000) AS at) AS now
  JOIN instances AS i ON i.instance_id = a.instance_id
  LEFT JOIN LATERAL (
    SELECT h.event_id FROM history AS h
    WHERE h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id
    ORDER BY h.event_id DESC LIMIT 1
  ) AS last ON true
  ORDER BY i.instance_id COLLATE "C"
  ON CONFLICT (instance_id) DO UPDATE
  SET execution_id = EXCLUDED.execution_id, last_event_id = EXCLUDED.last_event_id,
      reason = EXCLUDED.reason, problem = EXCLUDED.problem, event_id = EXCLUDED.event_id,
      build = EXCLUDED.build, tried_at = EXCLUDED.tried_at,
      -- An instance that has continued meanwhile is blocked anew.
      (since, tries) = (
        SELECT
          CASE WHEN stays THEN b.since ELSE EXCLUDED.since END,
          CASE WHEN stays THEN b.tries + 1 ELSE 1 END
        FROM (
          SELECT (b.execution_id, b.last_event_id) = (EXCLUDED.execution_id, EXCLUDED.last_event_id) AS stays
        ) AS compared
      );
END
$$;
