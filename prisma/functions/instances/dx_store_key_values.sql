-- Stores changes of key-values. The changes of an ended execution become visible to the next execution and to readers.
-- A part of dx_store_turns.
--
-- Bound: the changes, and the key-value rows of instances that change them. Locks: rows of kv_delta, then of kv_store.
CREATE OR REPLACE FUNCTION dx_store_key_values(
  p_turns dx_turn[],
  p_key_values jsonb,              -- as in dx_store_turns
  p_ends boolean,                  -- whether any turn ends its execution
  p_now_ms bigint
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  IF p_key_values IS NOT NULL THEN
    -- The last change of a key counts. clear_all removes every key that exists at its position.
    INSERT INTO kv_delta (instance_id, key, value, last_updated_at_ms)
    WITH change AS (
      SELECT
        p_turns[c.ack].instance_id AS instance_id, c.action, c.key, c.value, c.last_updated_at_ms, c.position,
        max(c.position) FILTER (WHERE c.action = 'clear_all') OVER (PARTITION BY c.ack) AS cleared_at
      FROM ROWS FROM (
        jsonb_to_recordset(p_key_values)
          AS (ack bigint, action text, key text, value text, last_updated_at_ms bigint)
      ) WITH ORDINALITY AS c (ack, action, key, value, last_updated_at_ms, position)
      WHERE p_turns[c.ack].execution_id IS NOT NULL
    ),
    changed_key AS (
      SELECT change.instance_id, change.key, change.position, change.value, change.last_updated_at_ms
      FROM change WHERE change.action = 'set' AND change.position > COALESCE(change.cleared_at, 0)
      UNION ALL
      SELECT change.instance_id, change.key, change.position, NULL, p_now_ms FROM change
      WHERE change.action = 'clear_key' OR (change.action = 'set' AND change.position < change.cleared_at)
      UNION ALL
      SELECT change.instance_id, stored.key, 0, NULL, p_now_ms FROM change
      CROSS JOIN LATERAL (
        SELECT d.key FROM kv_delta AS d WHERE d.instance_id = change.instance_id
        UNION
        SELECT s.key FROM kv_store AS s WHERE s.instance_id = change.instance_id
      ) AS stored
      WHERE change.position = change.cleared_at
    )
    SELECT DISTINCT ON (changed_key.instance_id COLLATE "C", changed_key.key COLLATE "C")
      changed_key.instance_id, changed_key.key, changed_key.value, changed_key.last_updated_at_ms
    FROM changed_key
    ORDER BY changed_key.instance_id COLLATE "C", changed_key.key COLLATE "C", changed_key.position DESC
    ON CONFLICT (instance_id, key) DO UPDATE
    SET value = excluded.value, last_updated_at_ms = excluded.last_updated_at_ms;
  END IF;

  IF NOT p_ends THEN
    RETURN;
  END IF;
  WITH moved AS (
    DELETE FROM kv_delta AS d USING unnest(p_turns) AS turn
    WHERE d.instance_id = turn.instance_id
      AND turn.execution_id IS NOT NULL
      AND turn.status IN ('Completed', 'Failed', 'ContinuedAsNew')
    RETURNING d.instance_id, d.key, d.value, d.last_updated_at_ms, turn.execution_id
  ),
  removed AS (
    DELETE FROM kv_store AS s USING moved
    WHERE s.instance_id = moved.instance_id AND s.key = moved.key AND moved.value IS NULL
  )
  INSERT INTO kv_store (instance_id, key, value, execution_id, last_updated_at_ms)
  SELECT moved.instance_id, moved.key, moved.value, moved.execution_id, moved.last_updated_at_ms
  FROM moved WHERE moved.value IS NOT NULL
  ON CONFLICT (instance_id, key) DO UPDATE
  SET value = excluded.value, execution_id = excluded.execution_id,
      last_updated_at_ms = excluded.last_updated_at_ms;
END
$$;
