-- Reads which of the tasks have ended, and marks the others: their end will be announced.
--
-- Returns one row per task that has ended or does not exist; the status of the latter is Missing.
--
-- Bound: the tasks given. Locks: tasks that are not marked yet, by id.
CREATE OR REPLACE FUNCTION dx_await_tasks(
  p_ids uuid[],
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS TABLE (
  out_id text,
  out_status text,
  out_result text,
  out_error text
)
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
BEGIN
  -- An update locks in an order of its own. look_at IS NOT NULL would lead to the index of all that have not ended.
  PERFORM
  FROM queue_tasks AS t
  WHERE t.id = ANY (p_ids)
    AND NOT t.is_awaited
    AND num_nulls(t.look_at) = 0
  ORDER BY t.id
  FOR NO KEY UPDATE;
  UPDATE queue_tasks AS t
  SET is_awaited = true,
      updated_at = to_timestamp(v_now_ms::float8 / 1000)
  WHERE t.id = ANY (p_ids)
    AND NOT t.is_awaited
    AND num_nulls(t.look_at) = 0;

  RETURN QUERY
  SELECT one.id::text, COALESCE(t.status, 'Missing'), t.result, t.error
  FROM unnest(p_ids) AS one (id)
  LEFT JOIN LATERAL (
    SELECT x.status, x.result, x.error
    FROM queue_tasks AS x
    WHERE x.id = one.id
    OFFSET 0
  ) AS t ON true
  WHERE t.status IS NULL OR t.status NOT IN ('Pending', 'Running');
END
$$;
