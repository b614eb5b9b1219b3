-- Says which of these, all of one kind and about to be stored, have slots of their limits at once: where no limit is near, they
-- need not wait for a claim to admit them, and may be handed over.
--
-- Returns one answer each, in order; true for one without a limit. Null: none has a limit.
--
-- Callers do not wait for each other, so each must leave room for what others store and have not committed: of a name
-- four transactions may admit at once, each up to an eighth of a bound and no more than 250, as long as three times that
-- many slots stay free (dx_room_at_once). A key counts like all keys. All of a name wait if one of it waits, if it has a
-- rate, or if another transaction admits some by a claim.
--
-- Bound: what has slots of these names and keys, up to their limits. Locks: advisory locks of limits, shared, and one of
-- four of their parts (try).
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
  v_room bigint;
BEGIN
  FOR v_name IN
    SELECT l.name FROM limits AS l WHERE l.kind = p_kind AND l.name = ANY (p_names)
    ORDER BY l.name COLLATE "C"
  LOOP
    v_answers := COALESCE(v_answers, array_fill(true, ARRAY[cardinality(p_names)]));
    v_room := 0;
    IF NOT dx_is_limit_awaited(p_kind, v_name)
      AND pg_try_advisory_xact_lock_shared(dx_limit_lock(p_kind, v_name))
      AND (
        pg_try_advisory_xact_lock(dx_limit_lock(p_kind, v_name, 1))
        OR pg_try_advisory_xact_lock(dx_limit_lock(p_kind, v_name, 2))
        OR pg_try_advisory_xact_lock(dx_limit_lock(p_kind, v_name, 3))
        OR pg_try_advisory_xact_lock(dx_limit_lock(p_kind, v_name, 4))
      )
    THEN
      -- Under the locks: this sees what was changed and admitted before.
      SELECT l.* INTO v_limit FROM limits AS l WHERE l.kind = p_kind AND l.name = v_name;
      IF v_limit.rate IS NULL AND v_limit.key_rate IS NULL THEN
        v_room := dx_room_at_once(p_kind, v_name, NULL, v_limit.concurrency);
      END IF;
    END IF;

    v_answers := ARRAY(
      SELECT ranked.answer AND (NOT ranked.is_limited OR ranked.has_room AND ranked.place <= v_room)
      FROM (
        SELECT
          each_one.*,
          count(*) FILTER (WHERE each_one.is_limited AND each_one.has_room) OVER (ORDER BY each_one.position) AS place
        FROM (
          SELECT
            asked.answer, asked.position, asked.name IS NOT DISTINCT FROM v_name AS is_limited,
            (
              row_number() OVER (PARTITION BY asked.name, COALESCE(asked.key, '') ORDER BY asked.position)
                <= room.of_key
            ) IS TRUE AS has_room
          FROM ROWS FROM (unnest(v_answers), unnest(p_names), unnest(p_keys)) WITH ORDINALITY
            AS asked (answer, name, key, position)
          LEFT JOIN (
            SELECT
              same.key,
              CASE
                WHEN k.rate IS NULL
                  THEN dx_room_at_once(
                    p_kind, v_name, same.key,
                    CASE WHEN k.is_own THEN k.concurrency ELSE v_limit.key_concurrency END
                  )
                ELSE 0
              END AS of_key
            FROM (
              SELECT DISTINCT COALESCE(one.key, '') AS key FROM unnest(p_names, p_keys) AS one (name, key)
              WHERE one.name = v_name AND v_room > 0
            ) AS same
            LEFT JOIN limit_keys AS k
              ON k.kind = p_kind AND k.name = v_name AND k.key = same.key AND k.is_own
          ) AS room ON room.key = COALESCE(asked.key, '')
        ) AS each_one
      ) AS ranked
      ORDER BY ranked.position
    );
  END LOOP;
  RETURN v_answers;
END
$$;
