-- Stores the definitions of schedules. A new timing counts from now on: its earlier occurrences do not fire. All else
-- of a schedule that is replaced stays: its pause, its last run, the occurrence that waits.
--
-- Returns one outcome per schedule, in order: Created, Replaced, Unchanged, or Exists, which leaves it as it is.
-- Bound: the schedules given. Locks: the rows that it writes, by name.
CREATE OR REPLACE FUNCTION dx_store_schedules(
  p_schedules jsonb,               -- [{name, definition, payload or text_at, code}], each name once
  p_texts text[],                  -- as in dx_store_turns
  p_replaces boolean,              -- whether a schedule of the name is replaced
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now timestamptz := dx_time_of(COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint));
  v_outcomes text[] := array_fill('Exists'::text, ARRAY[jsonb_array_length(p_schedules)]);
  v_item record;
BEGIN
  FOR v_item IN
    SELECT s.position, s.name, s.definition, COALESCE(s.payload, p_texts[s.text_at]) AS payload, s.code
    FROM ROWS FROM (
      jsonb_to_recordset(p_schedules) AS (name text, definition jsonb, payload text, text_at integer, code text)
    ) WITH ORDINALITY AS s (name, definition, payload, text_at, code, position)
    ORDER BY s.name COLLATE "C"
  LOOP
    -- Revisions begin anywhere: what was decided about an earlier schedule of the name does not fit.
    INSERT INTO schedules (name, definition, payload, code, revision, created_at, updated_at, fired_until, look_at)
    VALUES (
      v_item.name, v_item.definition, v_item.payload, v_item.code, floor(random() * 4503599627370496)::bigint,
      v_now, v_now, v_now, v_now
    )
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
      v_outcomes[v_item.position] := 'Created';
      CONTINUE;
    END IF;
    -- Without a lock: a scheduler may be firing it.
    IF EXISTS (
      SELECT FROM schedules AS s
      WHERE s.name = v_item.name
        AND (s.definition, s.payload, s.code) IS NOT DISTINCT FROM (v_item.definition, v_item.payload, v_item.code)
    ) THEN
      v_outcomes[v_item.position] := 'Unchanged';
    ELSIF p_replaces THEN
      v_outcomes[v_item.position] := 'Replaced';
      UPDATE schedules AS s
      SET definition = v_item.definition, payload = v_item.payload, code = v_item.code, revision = s.revision + 1,
          updated_at = v_now, next_at = NULL, look_at = v_now,
          fired_until = CASE
            WHEN s.definition -> 'timing' = v_item.definition -> 'timing' THEN s.fired_until
            ELSE greatest(s.fired_until, v_now)
          END
      WHERE s.name = v_item.name;
    END IF;
  END LOOP;
  RETURN v_outcomes;
END
$$;
