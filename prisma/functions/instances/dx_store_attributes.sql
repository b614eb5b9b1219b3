-- Stores changes of attributes: the last change of a name counts. A part of dx_store_turns.
--
-- Bound: the changes. Locks: rows of attributes.
CREATE OR REPLACE FUNCTION dx_store_attributes(
  p_turns dx_turn[],
  p_changes jsonb                  -- [{ack, action: attribute, name, text, number, time_ms}]; without a value the
                                   --   attribute is removed. Other actions are left out
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_change record;
BEGIN
  -- One by one: a join to the set could become one read of the whole table.
  FOR v_change IN
    SELECT DISTINCT ON (turn.instance_id COLLATE "C", c.name COLLATE "C")
      turn.instance_id, c.name, c.text, c.number, to_timestamp(c.time_ms::float8 / 1000) AS time,
      (SELECT i.created_at FROM instances AS i WHERE i.instance_id = turn.instance_id) AS created_at
    FROM ROWS FROM (
      jsonb_to_recordset(p_changes)
        AS (ack bigint, action text, name text, text text, number double precision, time_ms bigint)
    ) WITH ORDINALITY AS c (ack, action, name, text, number, time_ms, position)
    CROSS JOIN LATERAL (SELECT p_turns[c.ack].instance_id, p_turns[c.ack].execution_id) AS turn
    WHERE c.action = 'attribute' AND turn.execution_id IS NOT NULL
    ORDER BY turn.instance_id COLLATE "C", c.name COLLATE "C", c.position DESC
  LOOP
    IF num_nonnulls(v_change.text, v_change.number, v_change.time) = 0 THEN
      DELETE FROM attributes AS a
      WHERE a.instance_id = v_change.instance_id
        AND a.name || '' = v_change.name; -- not by the index of all that have the attribute
    ELSIF v_change.created_at IS NOT NULL THEN
      INSERT INTO attributes AS a (instance_id, name, text_value, number_value, time_value, created_at)
      VALUES (
        v_change.instance_id, v_change.name, v_change.text, v_change.number, v_change.time, v_change.created_at
      )
      ON CONFLICT (instance_id, name) DO UPDATE
      SET text_value = excluded.text_value, number_value = excluded.number_value, time_value = excluded.time_value,
          created_at = excluded.created_at
      -- The first turn repeats what the start has stored.
      WHERE (a.text_value, a.number_value, a.time_value, a.created_at)
        IS DISTINCT FROM (excluded.text_value, excluded.number_value, excluded.time_value, excluded.created_at);
    END IF;
  END LOOP;
END
$$;
