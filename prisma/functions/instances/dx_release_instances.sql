-- Ends the locks of a claim on instances of which it got no message: before they were locked, another process settled
-- their messages or pinned their version.
--
-- Bound: the locks given, and the queued messages of their instances. Locks: the lock rows.
CREATE OR REPLACE FUNCTION dx_release_instances(
  p_instances text[],
  p_secret text                    -- of the locks
) RETURNS void LANGUAGE sql VOLATILE
-- settings of the caller
AS $$
  DELETE FROM instance_locks AS l
  WHERE l.instance_id = ANY (p_instances)
    AND l.lock_token = p_secret
    AND NOT EXISTS (
      SELECT FROM orchestrator_queue AS q
      WHERE q.instance_id = l.instance_id AND q.lock_token = p_secret
    );
$$;
