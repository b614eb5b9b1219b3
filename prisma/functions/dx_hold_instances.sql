-- Takes instances away from whoever runs them, so that a tree can be deleted in several transactions.
--
-- Returns one row: an id of p_must_have_ended that has not ended, and then nothing was held; else the ids of all
-- children. Those of the given that have not ended get a lease that no process holds: until it is over no claim takes them, and a
-- turn that is under way has lost its lease.
--
-- Invariant, for a tree that is held from the root down and then deleted from the leaves up, in slices: a parent takes
-- no turn between the moment it is held and its deletion. So out_children, read after that moment, are all it will ever
-- have, and it does not see that some are gone. What has ended takes no turn anyway. The invariant makes a deletion
-- finish; that no child is left without its parent does not rest on it, because dx_delete_instances looks for children
-- in the transaction that deletes. When a deletion stops half way, the root is still there and can be deleted again;
-- what was not deleted goes on when the lease is over.
--
-- Bound: the ids given, their children, and the queued starts of all children.
--
-- Locks: advisory locks of all ids by key (waits for claims); leases by id (waits for turns that are being stored).
CREATE OR REPLACE FUNCTION dx_hold_instances(
  p_instance_ids text[],           -- some thousands at most: each takes a place in the server's table of locks
  p_must_have_ended text[],        -- a part of p_instance_ids
  p_for_ms bigint,                 -- milliseconds, > 0
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS TABLE (
  out_still_running text,
  out_children text[]
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_secret text := gen_random_uuid()::text;
  v_running text[];
BEGIN
  -- In the order of the keys, which two ids may share.
  PERFORM pg_advisory_xact_lock(one.key)
  FROM (
    SELECT DISTINCT hashtext(id) AS key
    FROM unnest(p_instance_ids) AS given (id)
    ORDER BY key
  ) AS one;

  SELECT array_agg(running.id)
  INTO v_running
  FROM dx_running_instances(p_instance_ids) AS running (id);

  SELECT running.id
  INTO out_still_running
  FROM unnest(v_running) AS running (id)
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
  SET lock_token = excluded.lock_token,
      locked_until = excluded.locked_until,
      locked_at = excluded.locked_at;

  SELECT COALESCE(array_agg(child.id), '{}')
  INTO out_children
  FROM dx_children_of(p_instance_ids) AS child (id);
  RETURN NEXT;
END
$$;
