-- Returns the messages that only say that some task of a name may begin: the task that they name has one of these
-- names, which has a limit, and it waits for a slot, runs, or has ended.
--
-- Bound: the messages given. Locks: none.
CREATE OR REPLACE FUNCTION dx_limited_messages(
  p_messages bigint[], p_names text[], p_now_ms bigint
) RETURNS TABLE (id bigint, name text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT message.id, task.name
  FROM unnest(p_messages) AS given (id)
  CROSS JOIN LATERAL (
    SELECT m.id, dx_task_id(m.payload ->> 'task_id') AS task_id FROM queue_messages AS m
    WHERE m.id = given.id AND m.payload ->> 'kind' IS NOT NULL
    OFFSET 0
  ) AS message
  CROSS JOIN LATERAL (
    SELECT t.name FROM queue_tasks AS t
    WHERE t.id = message.task_id
      AND t.name = ANY (p_names)
      AND CASE t.status
        WHEN 'Pending' THEN NOT t.has_slot AND t.run_at <= to_timestamp(p_now_ms::float8 / 1000) AND t.lost < 2
        WHEN 'Running' THEN t.lease_until > p_now_ms
        ELSE true
      END
    OFFSET 0
  ) AS task
  WHERE EXISTS (SELECT FROM limits AS l WHERE l.kind = 'task' AND l.name = task.name)
$$;
