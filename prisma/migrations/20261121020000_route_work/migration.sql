-- Purpose: records in every queued row which processes may take it, so that a claim never reads work of others, and in every
-- message since when it may be delivered, whatever the clock does afterwards.
-- Effect on running workers: they wait while orchestrator_queue is written anew, with its waiting messages; columns of Duroxide
-- do not change, a trigger sets the route of its rows, and the server computes due_at.
ALTER TABLE instances ADD COLUMN route TEXT NOT NULL DEFAULT '';

ALTER TABLE orchestrator_queue ADD COLUMN route TEXT NOT NULL DEFAULT '';

ALTER TABLE worker_queue ADD COLUMN route TEXT NOT NULL DEFAULT '';

-- A message that is not to wait is due since ever: its place does not depend on the clock.
ALTER TABLE orchestrator_queue ADD COLUMN due_at TIMESTAMPTZ
  GENERATED ALWAYS AS (COALESCE(NULLIF(GREATEST(visible_at, created_at), created_at), '-infinity')) STORED;

-- Claiming, settling: the due messages of one instance in order; deletion of an instance.
CREATE INDEX orchestrator_queue_instance_id_due_at_id_idx ON orchestrator_queue (instance_id, due_at, id);

-- Claiming: the instances of a route, by their oldest visible message; listing the routes.
CREATE INDEX orchestrator_queue_route_visible_at_id_idx ON orchestrator_queue (route, visible_at, id);

-- Claiming: the activities of a route, by the time they became visible; listing the routes.
CREATE INDEX worker_queue_route_visible_at_id_idx ON worker_queue (route, visible_at, id)
  WHERE session_id IS NULL;

-- Claiming: the same for each session of a route.
CREATE INDEX worker_queue_route_session_id_visible_at_id_idx ON worker_queue (route, session_id, visible_at, id)
  WHERE session_id IS NOT NULL;

-- Claiming: sessions of a route by their oldest activity. The condition differs from the one above, so that neither index is
-- taken for a statement that needs the other.
CREATE INDEX worker_queue_route_visible_at_id_session_idx ON worker_queue (route, visible_at, id)
  WHERE num_nulls(session_id) = 0;

-- Claiming, renewing: the sessions of a worker.
CREATE INDEX sessions_worker_id_idx ON sessions (worker_id);
