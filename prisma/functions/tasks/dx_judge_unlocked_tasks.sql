-- Says what tasks do that a claim could not lock: another transaction has locked them, or they wait for a slot. A part
-- of dx_claim_tasks, whose outcomes these are.
--
-- A task that waits while another transaction has locked it is Locked: if that is neither a claim nor an end, nothing
-- else wakes the task.
--
-- Bound: the wake-ups given. Locks: none.
CREATE OR REPLACE FUNCTION dx_judge_unlocked_tasks(
  p_ids uuid[],                    -- of the task that each wake-up names
  p_names text[],                  -- of the tasks that the caller serves
  p_limited text[],                -- of the tasks with a limit
  p_now_ms bigint,
  INOUT p_outcomes text[],         -- of each wake-up; only those that are Missing are judged
  INOUT p_stands_for text[]        -- the name of whose tasks it may begin one
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_row record;
BEGIN
  FOR v_row IN
    SELECT item.position, t.* FROM unnest(p_ids) WITH ORDINALITY AS item (id, position)
    CROSS JOIN LATERAL (
      SELECT
        x.name, x.status, x.run_at > v_now AS is_early, NOT x.has_slot AND x.lost < 2 AS is_limited,
        x.status = 'Pending' OR (x.status = 'Running' AND x.lease_until <= p_now_ms) AS is_waiting
      FROM queue_tasks AS x WHERE x.id = item.id
      OFFSET 0
    ) AS t
    WHERE p_outcomes[item.position] = 'Missing'
  LOOP
    p_outcomes[v_row.position] := CASE
      WHEN v_row.is_limited AND v_row.is_early THEN 'NotDue'
      WHEN v_row.is_limited THEN 'Limited'
      WHEN v_row.is_waiting THEN 'Locked'
      ELSE 'Busy'
    END;
    IF p_outcomes[v_row.position] IN ('Limited', 'Busy') AND v_row.name = ANY (p_names)
      AND (v_row.is_limited OR v_row.name = ANY (p_limited))
    THEN
      p_stands_for[v_row.position] := v_row.name;
    END IF;
  END LOOP;
END
$$;
