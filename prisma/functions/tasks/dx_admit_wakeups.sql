-- Begins tasks with a limit for wake-ups of their name, and suspects for wake-ups of their own. A part of
-- dx_claim_tasks, which has the locks of their limits; says of each wake-up which task it began.
--
-- Bound, locks: those of dx_admit_tasks, once per name and once per suspect.
CREATE OR REPLACE FUNCTION dx_admit_wakeups(
  p_ids uuid[],                    -- of the task that each wake-up names
  p_stands_for text[],             -- the name of whose tasks it may begin one; null: none
  p_suspects bigint[],             -- positions of wake-ups whose task is a suspect and waits for a slot
  p_names text[], p_lease_ms bigint[], p_worker_id text, p_claim_id integer, -- as in dx_claim_tasks
  p_known uuid[],                  -- tasks that the claim has begun already
  p_now_ms bigint,
  INOUT p_outcomes text[],         -- of each wake-up, as in dx_claim_tasks
  INOUT p_answers uuid[]           -- the task of each outcome
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_row record;
  v_admitted record;
  v_position bigint;
BEGIN
  FOR v_row IN
    SELECT wakeup.name, array_agg(wakeup.position) AS positions
    FROM unnest(p_stands_for) WITH ORDINALITY AS wakeup (name, position)
    WHERE wakeup.name IS NOT NULL
    GROUP BY wakeup.name
    ORDER BY wakeup.name COLLATE "C"
  LOOP
    SELECT admitted.* INTO v_admitted
    FROM dx_admit_tasks(
      v_row.name, cardinality(v_row.positions), p_lease_ms[array_position(p_names, v_row.name)], p_worker_id,
      p_claim_id, p_known, NULL, p_now_ms
    ) AS admitted;
    FOR v_position IN
      SELECT item.position FROM unnest(v_row.positions) AS item (position)
      -- Each its own task, if that has begun.
      ORDER BY p_ids[item.position] = ANY (v_admitted.out_ids) DESC, item.position
    LOOP
      IF p_ids[v_position] = ANY (v_admitted.out_ids) THEN
        p_answers[v_position] := p_ids[v_position];
      ELSE
        p_answers[v_position] := v_admitted.out_ids[1];
      END IF;
      IF p_answers[v_position] IS NOT NULL THEN
        p_outcomes[v_position] := 'Claimed';
        v_admitted.out_ids := array_remove(v_admitted.out_ids, p_answers[v_position]);
      ELSE
        p_answers[v_position] := p_ids[v_position];
        IF NOT v_admitted.out_may_drop THEN
          p_outcomes[v_position] := 'Locked';
        END IF;
      END IF;
    END LOOP;
  END LOOP;
  FOREACH v_position IN ARRAY p_suspects LOOP
    SELECT admitted.* INTO v_admitted FROM queue_tasks AS t
    CROSS JOIN LATERAL dx_admit_tasks(
      t.name, 1, p_lease_ms[array_position(p_names, t.name)], p_worker_id, p_claim_id, '{}', t.id, p_now_ms
    ) AS admitted
    WHERE t.id = p_ids[v_position];
    IF v_admitted.out_ids <> '{}' THEN
      p_outcomes[v_position] := 'Claimed';
    END IF;
  END LOOP;
END
$$;
