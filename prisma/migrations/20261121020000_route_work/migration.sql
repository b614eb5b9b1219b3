-- Purpose: says on every queued row which processes may take it, so that a claim never looks at work of others.
-- Effect on running workers: none; columns of Duroxide stay as they are, and rows it writes get their route by a trigger.
ALTER TABLE instances ADD COLUMN route TEXT NOT NULL DEFAULT '';

ALTER TABLE orchestrator_queue ADD COLUMN route TEXT NOT NULL DEFAULT '';

ALTER TABLE worker_queue ADD COLUMN route TEXT NOT NULL DEFAULT '';

-- Claiming: the instances of a route with the oldest visible message first; which routes there are.
CREATE INDEX orchestrator_queue_route_visible_at_id_idx ON orchestrator_queue (route, visible_at, id);

-- Claiming: the activities of a route that are visible longest; which routes there are.
CREATE INDEX worker_queue_route_visible_at_id_idx ON worker_queue (route, visible_at, id)
  WHERE session_id IS NULL;

-- Claiming: the same for each session of a route.
CREATE INDEX worker_queue_route_session_id_visible_at_id_idx ON worker_queue (route, session_id, visible_at, id)
  WHERE session_id IS NOT NULL;

-- Claiming: sessions of a route by their oldest activity. The condition differs from the one above, so that neither index is
-- taken for a statement that needs the other.
CREATE INDEX worker_queue_route_visible_at_id_session_idx ON worker_queue (route, visible_at, id)
  WHERE num_nulls(session_id) = 0;

-- Claiming, renewing: the sessions of an owner.
CREATE INDEX sessions_worker_id_idx ON sessions (worker_id);
