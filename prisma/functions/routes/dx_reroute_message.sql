-- Gives a queued message another route. Returns whether it got it: not if it has it already, or if another transaction
-- holds the message.
--
-- Bound: one row. Locks: the message (skip locked).
CREATE OR REPLACE FUNCTION dx_reroute_message(p_id bigint, p_route text) RETURNS boolean LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  -- Not a join: planned while the queue was empty, it would read the whole of it.
  UPDATE orchestrator_queue AS q SET route = p_route
  WHERE q.id = (
      SELECT message.id FROM orchestrator_queue AS message WHERE message.id = p_id
      FOR UPDATE SKIP LOCKED
    )
    AND q.route <> p_route;
  RETURN FOUND;
END
$$;
