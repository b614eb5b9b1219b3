-- Gives slots of limits at once to activities or instances that the caller is about to store in this transaction: they
-- need not wait for a claim to admit them, and may be handed over.
--
-- Returns which of them have one, in order; true for one without a limit. Null: none has a limit.
--
-- Transactions do not wait for each other, so each must leave room for what others have given and have not committed. A
-- limit has eight parts, each an advisory lock until the end of the transaction. Who holds a part may give a share of
-- the total bound, and of that of each key (dx_room_at_once). A caller takes as many parts as its slots need or, if
-- these are too few, all that no other transaction holds. If nothing can be given, it keeps no lock.
--
-- No slot is given here if another of the same name already waits, if the limit has a rate, if another transaction
-- gives slots of it by a claim, or if this transaction has given some before: others have left room for those, not for
-- more (duroxide.given_at_once). Nor in a transaction that is not READ COMMITTED: its snapshot may be older than its
-- locks.
--
-- Bound: what has slots of these names and keys, up to their limits, read once or twice. Locks: advisory locks of
-- limits, shared, and those of their parts (try).
CREATE OR REPLACE FUNCTION dx_admit_at_once(
  p_kind text,                     -- activity or orchestration
  p_names text[],                  -- null where Duroxide runs it, or where it is to wait
  p_keys text[],                   -- of the same length
  p_now_ms bigint
) RETURNS boolean[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_given text[] := NULLIF(current_setting('duroxide.given_at_once', true), '')::text[];
  v_answers boolean[];
  v_limit limits;
  v_name text;
  v_keys text[];                   -- the keys that are asked for, and how many of each
  v_counts bigint[];
  v_bounds bigint[];               -- what each allows, and what is left of that
  v_rooms bigint[];
  v_count bigint;                  -- the same of all keys
  v_room bigint;
  v_needed integer;
  v_parts integer;
  v_is_enough boolean;
BEGIN
  FOR v_limit IN
    SELECT l.* FROM limits AS l WHERE l.kind = p_kind AND l.name = ANY (p_names)
    ORDER BY l.name COLLATE "C"
  LOOP
    v_name := v_limit.name;
    v_answers := COALESCE(v_answers, array_fill(true, ARRAY[cardinality(p_names)]));
    v_is_enough := false;
    v_keys := NULL;
    v_rooms := NULL;
    v_room := 0;
    IF v_limit.rate IS NULL
      AND v_limit.key_rate IS NULL
      AND (p_kind || ' ' || v_name = ANY (v_given)) IS NOT TRUE
      AND current_setting('transaction_isolation') = 'read committed'
      AND NOT dx_is_limit_awaited(p_kind, v_name, p_now_ms)
    THEN
      BEGIN
        IF NOT pg_try_advisory_xact_lock_shared(dx_limit_lock(p_kind, v_name)) THEN
          RAISE SQLSTATE 'DX001';
        END IF;
        -- Under the lock: this sees what was changed and admitted before.
        SELECT l.* INTO v_limit FROM limits AS l WHERE l.kind = p_kind AND l.name = v_name;
        IF v_limit.rate IS NOT NULL OR v_limit.key_rate IS NOT NULL THEN
          RAISE SQLSTATE 'DX001';
        END IF;
        SELECT
          array_agg(same.key), array_agg(same.count), array_agg(same.bound), sum(same.count),
          least(8, ceil(greatest(
            1,
            max(same.count / NULLIF(dx_share_at_once(same.bound), 0)),
            sum(same.count) / dx_share_at_once(v_limit.concurrency)
          )))
        INTO v_keys, v_counts, v_bounds, v_count, v_needed
        FROM (
          SELECT
            one.key, count(*),
            CASE
              WHEN k.rate IS NOT NULL THEN 0
              WHEN k.is_own THEN k.concurrency
              ELSE v_limit.key_concurrency
            END AS bound
          FROM (
            SELECT COALESCE(asked.key, '') AS key FROM unnest(p_names, p_keys) AS asked (name, key)
            WHERE asked.name = v_name
          ) AS one
          LEFT JOIN limit_keys AS k ON k.kind = p_kind AND k.name = v_name AND k.key = one.key AND k.is_own
          GROUP BY one.key, k.rate, k.is_own, k.concurrency
        ) AS same;

        LOOP
          v_parts := dx_take_limit_parts(p_kind, v_name, v_needed);
          v_room := dx_room_at_once(p_kind, v_name, NULL, v_limit.concurrency, v_parts);
          v_rooms := ARRAY(
            SELECT CASE WHEN v_room > 0 THEN dx_room_at_once(p_kind, v_name, same.key, same.bound, v_parts) ELSE 0 END
            FROM unnest(v_keys, v_bounds) WITH ORDINALITY AS same (key, bound, position)
            ORDER BY same.position
          );
          v_is_enough := v_count <= v_room AND true = ALL (
            SELECT same.count <= same.room FROM unnest(v_counts, v_rooms) AS same (count, room)
          );
          EXIT WHEN v_is_enough OR v_parts < v_needed OR v_parts = 8;
          v_needed := 8; -- the shares were too small: with all parts, all that is free
        END LOOP;
        IF v_room <= 0 OR 0 >= ALL (v_rooms) THEN
          RAISE SQLSTATE 'DX001';
        END IF;
        v_given := v_given || (p_kind || ' ' || v_name);
        PERFORM set_config('duroxide.given_at_once', v_given::text, true);
      EXCEPTION WHEN SQLSTATE 'DX001' THEN
        -- Nothing is given. The locks are gone with this block: a transaction that stays open would hold up all claims.
        v_room := 0;
      END;
    END IF;
    CONTINUE WHEN v_is_enough;

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
                <= of_key.room
            ) IS TRUE AS has_room
          FROM ROWS FROM (unnest(v_answers), unnest(p_names), unnest(p_keys)) WITH ORDINALITY
            AS asked (answer, name, key, position)
          LEFT JOIN unnest(v_keys, v_rooms) AS of_key (key, room)
            ON v_room > 0 AND of_key.key = COALESCE(asked.key, '')
        ) AS each_one
      ) AS ranked
      ORDER BY ranked.position
    );
  END LOOP;
  RETURN v_answers;
END
$$;
