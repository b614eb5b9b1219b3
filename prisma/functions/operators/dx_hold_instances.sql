-- Takes instances away from the processes that run them, so that a tree can be deleted in several transactions.
--
-- Returns one row. out_still_running is an id of p_must_have_ended that has not ended; then nothing was held. Otherwise
-- out_children has the ids of all children. Each given instance that has not ended gets a lock that no process holds:
-- until it expires no claim takes the instance, and a turn under way has lost its lock.
--
-- A tree is held from the root down and then deleted from the leaves up, in slices. Invariant: a parent takes no turn
-- between the moment it is held and its deletion. So out_children, read after that moment, is complete for good, and
-- the parent does not notice that children disappear. An instance that has ended takes no turn anyway. The invariant
-- guarantees that a deletion finishes. That no child is left without its parent does not depend on it:
-- dx_delete_instances looks for children in the transaction that deletes. If a deletion stops half way, the root still
-- exists and can be deleted again; instances that were not deleted continue when the lock expires.
--
-- Bound: the ids given, their children, and the queued starts of all children.
-- Locks: advisory locks of all ids by key (waits for claims); instance locks by id (waits for turns that are being
-- stored).
CREATE OR REPLACE FUNCTION dx_hold_instances(
  p_instance_ids text[],           -- some thousands at most: each takes a place in the server's table of locks
  p_must_have_ended text[],        -- a part of p_instance_ids
  p_for_ms bigint,                 -- milliseconds, > 0
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (out_still_running text, out_children text[]) LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_secret text := gen_random_uuid()::text;
  v_running text[];
BEGIN
  -- In the order of the keys, which two ids may share.
  PERFORM pg_advisory_xact_lock(instance.key)
  FROM (
    SELECT DISTINCT hashtext(id) AS key FROM unnest(p_instance_ids) AS given (id)
    ORDER BY key
  ) AS instance;

  SELECT array_agg(running.id) INTO v_running FROM dx_running_instances(p_instance_ids) AS running (id);

  SELECT running.id INTO out_still_running FROM unnest(v_running) AS running (id)
  WHERE running.id = ANY (p_must_have_ended)
  LIMIT 1;
  IF out_still_running IS NOT NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;

  INSERT INTO instance_locks AS l (instance_id, lock_token, locked_until, locked_at)
  SELECT DISTINCT running.id COLLATE "C", v_secret, v_now_ms + p_for_ms, v_now_ms
  FROM unnest(v_running) AS running (id)
  ORDER BY 1
  ON CONFLICT (instance_id) DO UPDATE
  SET lock_token = excluded.lock_token, locked_until = excluded.locked_until, locked_at = excluded.locked_at
  -- What an operator has paused is held already, and stays paused if the deletion stops.
  WHERE l.lock_token <> '' OR l.locked_until < dx_no_end();

  SELECT COALESCE(array_agg(child.id), '{}') INTO out_children
  FROM dx_children_of(p_instance_ids) AS child (id);
  RETURN NEXT;
END
$$;
