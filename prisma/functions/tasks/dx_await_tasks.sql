-- Reads which of the tasks have ended, and marks the others: their end will be announced.
--
-- Returns the tasks that have ended or do not exist, up to 32 in a row, so that no value gets too long; the status of
-- the latter is Missing.
-- Bound: the tasks given. Locks: tasks that are not marked yet, by id.
CREATE OR REPLACE FUNCTION dx_await_tasks(p_ids uuid[], p_now_ms bigint DEFAULT NULL)
RETURNS SETOF json                 -- [[id, ...], [status, ...], [result, ...], [error, ...]]
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_open uuid[];
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
BEGIN
  -- look_at IS NOT NULL would lead to the index of all that have not ended.
  v_open := ARRAY(SELECT t.id FROM queue_tasks AS t WHERE t.id = ANY (p_ids) AND num_nulls(t.look_at) = 0);
  IF v_open <> '{}' THEN
    -- An update locks in an order of its own.
    PERFORM FROM queue_tasks AS t
    WHERE t.id = ANY (v_open) AND NOT t.is_awaited AND num_nulls(t.look_at) = 0
    ORDER BY t.id FOR NO KEY UPDATE;
    UPDATE queue_tasks AS t
    SET is_awaited = true, updated_at = to_timestamp(v_now_ms::float8 / 1000)
    WHERE t.id = ANY (v_open) AND NOT t.is_awaited AND num_nulls(t.look_at) = 0;
  END IF;

  RETURN QUERY
  SELECT json_build_array(json_agg(part.id), json_agg(part.status), json_agg(part.result), json_agg(part.error))
  FROM (
    SELECT ended.*, (row_number() OVER () - 1) / 32 AS number
    FROM (
      SELECT task.id, COALESCE(t.status, 'Missing') AS status, t.result, t.error
      FROM unnest(p_ids) AS task (id)
      LEFT JOIN LATERAL (
        SELECT x.status, x.result, x.error FROM queue_tasks AS x
        WHERE x.id = task.id
        OFFSET 0
      ) AS t ON true
      WHERE t.status IS NULL OR t.status NOT IN ('Pending', 'Running')
    ) AS ended
  ) AS part
  GROUP BY part.number;
END
$$;
