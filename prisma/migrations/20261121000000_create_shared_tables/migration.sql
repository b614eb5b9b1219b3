-- Purpose: creates the tables shared with duroxide-pg, as it makes them, our indexes on them and storage parameters.
-- Effect on running workers: none; a schema without these tables has no workers.
--
-- Names carry no schema: the search_path of the migrating session decides where the tables go.
--
-- Claims update only lock_token, locked_until and attempt_count. None of these is indexed, and fillfactor leaves room
-- for the new row version on the same page, so a claim touches no index (a heap-only update).
--
-- The queues and instance_locks are replaced completely every few seconds. Autovacuum should visit them each time it
-- wakes up (scale factor and threshold), at full speed (cost delay), and clean the indexes also when few pages have dead
-- rows (index cleanup), because claims read the indexes. It should not shorten the files, which takes a lock that claims
-- would wait for; they grow again at once.

CREATE TABLE instances (
  instance_id TEXT NOT NULL,
  orchestration_name TEXT NOT NULL,
  orchestration_version TEXT,
  current_execution_id BIGINT NOT NULL DEFAULT 1,
  created_at TIMESTAMPTZ NOT NULL,
  updated_at TIMESTAMPTZ NOT NULL,
  parent_instance_id TEXT,
  custom_status TEXT,
  custom_status_version INTEGER NOT NULL DEFAULT 0,
  CONSTRAINT instances_pkey PRIMARY KEY (instance_id)
) WITH (fillfactor = 80); -- every turn updates the row

CREATE TABLE executions (
  instance_id TEXT NOT NULL,
  execution_id BIGINT NOT NULL,
  status TEXT NOT NULL DEFAULT 'Running',
  output TEXT,
  started_at TIMESTAMPTZ NOT NULL,
  completed_at TIMESTAMPTZ,
  duroxide_version_major INTEGER,
  duroxide_version_minor INTEGER,
  duroxide_version_patch INTEGER,
  CONSTRAINT executions_pkey PRIMARY KEY (instance_id, execution_id)
) WITH (fillfactor = 80); -- updated when the execution is pinned and when it ends

CREATE TABLE history (
  instance_id TEXT NOT NULL,
  execution_id BIGINT NOT NULL,
  event_id BIGINT NOT NULL,
  event_type TEXT NOT NULL,
  event_data TEXT NOT NULL,
  created_at TIMESTAMPTZ NOT NULL,
  CONSTRAINT history_pkey PRIMARY KEY (instance_id, execution_id, event_id)
); -- append-only

CREATE TABLE orchestrator_queue (
  id BIGSERIAL NOT NULL,
  instance_id TEXT NOT NULL,
  work_item TEXT NOT NULL,
  visible_at TIMESTAMPTZ NOT NULL,
  lock_token TEXT,
  locked_until BIGINT, -- milliseconds since the Unix epoch
  created_at TIMESTAMPTZ NOT NULL,
  attempt_count INTEGER NOT NULL DEFAULT 0,
  CONSTRAINT orchestrator_queue_pkey PRIMARY KEY (id)
) WITH (
  fillfactor = 45, -- a claim updates every row once: the new versions of all rows fit on the page
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
  vacuum_index_cleanup = on, vacuum_truncate = off
);

CREATE TABLE worker_queue (
  id BIGSERIAL NOT NULL,
  work_item TEXT NOT NULL,
  visible_at TIMESTAMPTZ NOT NULL,
  lock_token TEXT,
  locked_until BIGINT, -- milliseconds since the Unix epoch
  created_at TIMESTAMPTZ NOT NULL,
  attempt_count INTEGER NOT NULL DEFAULT 0,
  instance_id TEXT,
  execution_id BIGINT,
  activity_id BIGINT,
  session_id TEXT,
  tag TEXT,
  CONSTRAINT worker_queue_pkey PRIMARY KEY (id)
) WITH (
  fillfactor = 45, -- as above
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
  vacuum_index_cleanup = on, vacuum_truncate = off
);

CREATE TABLE instance_locks (
  instance_id TEXT NOT NULL,
  lock_token TEXT NOT NULL,
  locked_until BIGINT NOT NULL, -- milliseconds since the Unix epoch
  locked_at BIGINT NOT NULL, -- milliseconds since the Unix epoch
  CONSTRAINT instance_locks_pkey PRIMARY KEY (instance_id)
) WITH (
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
  vacuum_index_cleanup = on, vacuum_truncate = off
);

CREATE TABLE sessions (
  session_id TEXT NOT NULL,
  worker_id TEXT NOT NULL,
  locked_until BIGINT NOT NULL, -- milliseconds since the Unix epoch
  last_activity_at BIGINT NOT NULL, -- milliseconds since the Unix epoch
  CONSTRAINT sessions_pkey PRIMARY KEY (session_id)
) WITH (fillfactor = 70); -- updated by every activity of the session

CREATE TABLE kv_store (
  instance_id TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  execution_id BIGINT NOT NULL,
  last_updated_at_ms BIGINT NOT NULL DEFAULT 0,
  CONSTRAINT kv_store_pkey PRIMARY KEY (instance_id, key)
);

CREATE TABLE kv_delta (
  instance_id TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT, -- null: the key was removed
  last_updated_at_ms BIGINT NOT NULL,
  CONSTRAINT kv_delta_pkey PRIMARY KEY (instance_id, key)
);

-- Children of an instance, the newest first: listing a tree, deleting or cancelling it.
CREATE INDEX instances_parent_instance_id_created_at_idx ON instances (parent_instance_id, created_at)
  WHERE parent_instance_id IS NOT NULL;

-- Deletion of an instance: queued starts of its children.
CREATE INDEX orchestrator_queue_instance_id_idx ON orchestrator_queue (instance_id)
  WHERE work_item LIKE '{"StartOrchestration"%' AND work_item NOT LIKE '%"parent_instance":null%';

-- Cancelling one activity of a turn; deletion of an instance.
CREATE INDEX worker_queue_instance_id_execution_id_activity_id_idx
  ON worker_queue (instance_id, execution_id, activity_id);

-- Clean-up of idle sessions: whether a session still has activities.
CREATE INDEX worker_queue_session_id_idx ON worker_queue (session_id)
  WHERE session_id IS NOT NULL;

-- Waiting: the next pause to end. A lock that a process holds has a token and is not in it.
CREATE INDEX instance_locks_locked_until_idx ON instance_locks (locked_until)
  WHERE lock_token = '';
