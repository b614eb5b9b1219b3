-- Says which of these, all of one kind and about to be stored, have slots of their limits at once: where no limit is near, they
-- need not wait for a claim to admit them, and may be handed over.
--
-- Returns one answer each, in order; true for one without a limit. Null: none has a limit.
--
-- Callers do not wait for each other, so each must leave room for what others store and have not committed: of a name
-- four transactions may admit at once, 250 slots each, as long as 1,000 slots stay free besides. A key counts like all
-- keys. All of a name wait if one of it waits, if it has a rate, or if another transaction admits some by a claim.
--
-- Bound: what has slots of these names, up to their limits. Locks: advisory locks of limits, shared, and
-- one of four of their parts (try).
CREATE OR REPLACE FUNCTION dx_admit_at_once(
  p_kind text,                     -- activity or orchestration
  p_names text[],                  -- null where Duroxide runs it, or where it is to wait
  p_keys text[]                    -- of the same length
) RETURNS boolean[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_answers boolean[];
  v_name text;
  v_limit limits;
  v_key text;
  v_asked integer;
  v_concurrency integer;
  v_room bigint;
  v_had_room boolean;
  v_refused text[];                -- keys
BEGIN
  FOR v_name IN
    SELECT l.name FROM limits AS l WHERE l.kind = p_kind AND l.name = ANY (p_names)
    ORDER BY l.name COLLATE "C"
  LOOP
    v_answers := COALESCE(v_answers, array_fill(true, ARRAY[cardinality(p_names)]));
    v_room := CASE
      WHEN dx_is_limit_awaited(p_kind, v_name)
        OR NOT pg_try_advisory_xact_lock_shared(dx_limit_lock(p_kind, v_name))
        OR NOT (
          pg_try_advisory_xact_lock(dx_limit_lock(p_kind, v_name, 1))
          OR pg_try_advisory_xact_lock(dx_limit_lock(p_kind, v_name, 2))
          OR pg_try_advisory_xact_lock(dx_limit_lock(p_kind, v_name, 3))
          OR pg_try_advisory_xact_lock(dx_limit_lock(p_kind, v_name, 4))
        ) THEN 0
      ELSE 250
    END;
    -- Under the locks: this sees what was changed and admitted before.
    SELECT l.* INTO v_limit FROM limits AS l WHERE l.kind = p_kind AND l.name = v_name;
    IF v_limit.rate IS NOT NULL OR v_limit.key_rate IS NOT NULL THEN
      v_room := 0;
    ELSIF v_limit.concurrency IS NOT NULL AND v_room > 0 THEN
      v_room := least(
        250, v_limit.concurrency - 1000 - dx_count_slots(p_kind, v_name, NULL, v_limit.concurrency)
      );
    END IF;

    v_had_room := v_room > 0;
    v_refused := '{}';
    FOR v_key, v_asked IN
      SELECT COALESCE(asked.key, ''), count(*) FROM unnest(p_names, p_keys) AS asked (name, key)
      WHERE asked.name = v_name AND v_room > 0
      GROUP BY 1
    LOOP
      v_concurrency := v_limit.key_concurrency;
      SELECT CASE WHEN k.rate IS NULL THEN k.concurrency ELSE 0 END INTO v_concurrency FROM limit_keys AS k
      WHERE k.kind = p_kind AND k.name = v_name AND k.key = v_key AND k.is_own;
      IF NOT FOUND THEN
        v_concurrency := v_limit.key_concurrency;
      END IF;
      IF v_room >= v_asked
        AND (
          v_concurrency IS NULL
          OR v_concurrency - 1000 - v_asked >= dx_count_slots(p_kind, v_name, v_key, v_concurrency)
        )
      THEN
        v_room := v_room - v_asked;
      ELSE
        v_refused := v_refused || v_key;
      END IF;
    END LOOP;
    v_answers := ARRAY(
      SELECT
        asked.answer
          AND (asked.name = v_name AND (v_had_room IS FALSE OR COALESCE(asked.key, '') = ANY (v_refused))) IS NOT TRUE
      FROM ROWS FROM (unnest(v_answers), unnest(p_names), unnest(p_keys)) WITH ORDINALITY
        AS asked (answer, name, key, position)
      ORDER BY asked.position
    );
  END LOOP;
  RETURN v_answers;
END
$$;
