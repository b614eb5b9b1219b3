-- Purpose: creates the tables that only this package has: of blocked instances, attributes, progress streams, pauses, actions of operators, queues, outbox, tasks, data sets and imports. Records in
-- every queued row which processes may take it, so that a claim never reads work of others, and in every message since
-- when it may be delivered, whatever the clock does afterwards.
-- Effect on running workers: they wait while orchestrator_queue is written anew, with its waiting messages; columns of
-- Duroxide do not change, a trigger sets the route of its rows, and the server computes due_at.
--
-- Leases of outbox rows and tasks change only columns that no index has, and fillfactor leaves room for the new row
-- version on the same page, as in the queues of orchestrations. A lease of a message moves its time: so a receive reads
-- neither leased nor delayed messages, and the next lease to end is the head of the same index. Messages and outbox rows
-- live for seconds, so autovacuum visits them as often.

-- Instances whose next turn no process could run. Where an instance was then says whether it has gone on since.
CREATE TABLE blocked_instances (
  instance_id TEXT NOT NULL,
  execution_id BIGINT NOT NULL,
  last_event_id BIGINT NOT NULL,
  reason TEXT NOT NULL,
  problem TEXT NOT NULL,
  event_id BIGINT NOT NULL,
  build TEXT NOT NULL,
  since TIMESTAMPTZ NOT NULL,
  tried_at TIMESTAMPTZ NOT NULL,
  tries INTEGER NOT NULL,
  CONSTRAINT blocked_instances_pkey PRIMARY KEY (instance_id)
) WITH (fillfactor = 70);

-- Attributes of instances: of a text, a number and a time, one is not null. created_at is that of the instance: an index
-- has the order of a list, and a row with another time is of an instance with the same id that Duroxide has deleted.
CREATE TABLE attributes (
  instance_id TEXT NOT NULL,
  name TEXT NOT NULL,
  text_value TEXT,
  number_value DOUBLE PRECISION,
  time_value TIMESTAMPTZ,
  created_at TIMESTAMPTZ NOT NULL,
  CONSTRAINT attributes_pkey PRIMARY KEY (instance_id, name)
);
CREATE INDEX attributes_name_text_value_created_at_instance_id_idx ON attributes (name, text_value, created_at, instance_id)
  WHERE text_value IS NOT NULL;
CREATE INDEX attributes_name_number_value_created_at_instance_id_idx ON attributes (name, number_value, created_at, instance_id)
  WHERE number_value IS NOT NULL;
CREATE INDEX attributes_name_time_value_created_at_instance_id_idx ON attributes (name, time_value, created_at, instance_id)
  WHERE time_value IS NOT NULL;
CREATE INDEX attributes_name_created_at_instance_id_idx ON attributes (name, created_at, instance_id);

-- Streams of chunks that instances and their activities append for readers, besides their histories. An append locks the
-- row of its stream, so that offsets have no gaps; it changes no column that an index has.
CREATE TABLE progress_streams (
  id BIGSERIAL NOT NULL,
  instance_id TEXT NOT NULL,
  name TEXT NOT NULL,
  first_offset BIGINT NOT NULL DEFAULT 0, -- of the oldest chunk that is kept
  next_offset BIGINT NOT NULL DEFAULT 0,
  first_bytes BIGINT NOT NULL DEFAULT 0, -- bytes of all chunks before the oldest one that is kept
  next_bytes BIGINT NOT NULL DEFAULT 0, -- bytes of all chunks so far
  appended_at TIMESTAMPTZ NOT NULL,
  CONSTRAINT progress_streams_pkey PRIMARY KEY (id)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX progress_streams_instance_id_name_idx ON progress_streams (instance_id, name);

CREATE TABLE progress_chunks (
  stream_id BIGINT NOT NULL,
  chunk_offset BIGINT NOT NULL,
  bytes_before BIGINT NOT NULL, -- bytes of all chunks before this one
  writer TEXT NOT NULL, -- <execution>, or of an activity <execution>/<first try>/<try>/<delivery>/<random>
  number BIGINT NOT NULL, -- among the chunks of its writer, from 1; goes on where a later delivery goes on
  chunk TEXT NOT NULL,
  appended_at TIMESTAMPTZ NOT NULL,
  CONSTRAINT progress_chunks_pkey PRIMARY KEY (stream_id, chunk_offset)
) WITH (
  autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
  vacuum_index_cleanup = on, vacuum_truncate = off
); -- written once, deleted when newer ones need the room, or with the instance

-- Events that a retry has removed from a history, for people: who wants to know what was tried before.
CREATE TABLE removed_events (
  instance_id TEXT NOT NULL,
  execution_id BIGINT NOT NULL,
  removed_at TIMESTAMPTZ NOT NULL,
  kept BIGINT NOT NULL,
  reason TEXT NOT NULL,
  events TEXT[] NOT NULL,
  CONSTRAINT removed_events_pkey PRIMARY KEY (instance_id, removed_at)
);

-- What an operator has paused: one instance, one definition, a tag, everything. An instance also has a lock without an end.
CREATE TABLE paused (
  target TEXT NOT NULL,
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  reason TEXT,
  since TIMESTAMPTZ NOT NULL,
  CONSTRAINT paused_pkey PRIMARY KEY (target, name, version)
);

-- Limits: how much of a definition is under way, and how often one begins, all together and for each key. free_ms is when
-- all used tokens are back (GCRA), next_ms when the next one is that something waits for; last_key is where the round
-- over the keys has come to.
CREATE TABLE limits (
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  concurrency INTEGER,
  rate INTEGER,
  rate_ms BIGINT,
  burst INTEGER,
  key_concurrency INTEGER,
  key_rate INTEGER,
  key_rate_ms BIGINT,
  key_burst INTEGER,
  since TIMESTAMPTZ NOT NULL,
  free_ms DOUBLE PRECISION NOT NULL DEFAULT 0,
  next_ms BIGINT,
  last_key TEXT NOT NULL DEFAULT '',
  has_waiting BOOLEAN NOT NULL DEFAULT false,
  CONSTRAINT limits_pkey PRIMARY KEY (kind, name)
) WITH (fillfactor = 50);

-- Keys with limits of their own, and tokens that keys have used.
CREATE TABLE limit_keys (
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  key TEXT NOT NULL,
  is_own BOOLEAN NOT NULL,
  concurrency INTEGER,
  rate INTEGER,
  rate_ms BIGINT,
  burst INTEGER,
  free_ms DOUBLE PRECISION NOT NULL DEFAULT 0,
  CONSTRAINT limit_keys_pkey PRIMARY KEY (kind, name, key)
) WITH (fillfactor = 70);
CREATE INDEX limit_keys_kind_name_free_ms_idx ON limit_keys (kind, name, free_ms) WHERE NOT is_own;

-- What operators did with the page, for those who ask later. The primary key has the order of the list.
CREATE TABLE operator_actions (
  id BIGSERIAL NOT NULL,
  at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  target TEXT NOT NULL,
  details TEXT NOT NULL,
  outcome TEXT NOT NULL,
  CONSTRAINT operator_actions_pkey PRIMARY KEY (id)
);

CREATE TABLE queue_messages (
  id BIGSERIAL NOT NULL,
  queue TEXT NOT NULL,
  payload JSONB NOT NULL,
  created_at TIMESTAMPTZ NOT NULL,
  visible_at TIMESTAMPTZ NOT NULL,
  lease_token TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  max_attempts INTEGER NOT NULL DEFAULT 20,
  last_error TEXT,
  CONSTRAINT queue_messages_pkey PRIMARY KEY (id)
) WITH (
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
  vacuum_index_cleanup = on, vacuum_truncate = off
);
CREATE INDEX queue_messages_queue_visible_at_id_idx ON queue_messages (queue, visible_at, id);

CREATE TABLE queue_dead (
  id BIGINT NOT NULL,
  queue TEXT NOT NULL,
  payload JSONB NOT NULL,
  created_at TIMESTAMPTZ NOT NULL,
  died_at TIMESTAMPTZ NOT NULL,
  attempts INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  last_error TEXT,
  CONSTRAINT queue_dead_pkey PRIMARY KEY (id)
);
CREATE INDEX queue_dead_queue_died_at_id_idx ON queue_dead (queue, died_at, id);

CREATE TABLE queue_outbox (
  id BIGSERIAL NOT NULL,
  queue TEXT NOT NULL,
  payload JSONB NOT NULL,
  created_at TIMESTAMPTZ NOT NULL,
  deliver_at TIMESTAMPTZ NOT NULL,
  expires_at TIMESTAMPTZ,
  sent_at TIMESTAMPTZ,
  lease_token TEXT,
  lease_until BIGINT, -- milliseconds since the Unix epoch
  attempts INTEGER NOT NULL DEFAULT 0,
  last_error TEXT,
  CONSTRAINT queue_outbox_pkey PRIMARY KEY (id)
) WITH (
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
  vacuum_index_cleanup = on, vacuum_truncate = off
);
CREATE INDEX queue_outbox_queue_deliver_at_id_idx ON queue_outbox (queue, deliver_at, id) WHERE sent_at IS NULL;
CREATE INDEX queue_outbox_sent_at_idx ON queue_outbox (sent_at) WHERE sent_at IS NOT NULL;

-- A claim changes no column that an index or its condition names: neither status nor, mostly, look_at.
CREATE TABLE queue_tasks (
  id UUID NOT NULL,
  name TEXT NOT NULL,
  key TEXT,
  payload TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'Pending',
  attempt INTEGER NOT NULL DEFAULT 0,
  uncounted INTEGER NOT NULL DEFAULT 0,
  lost INTEGER NOT NULL DEFAULT 0,
  max_attempts INTEGER NOT NULL,
  run_at TIMESTAMPTZ NOT NULL,
  worker_id TEXT,
  started_at TIMESTAMPTZ,
  claim_id INTEGER,
  lease_until BIGINT, -- milliseconds since the Unix epoch
  heartbeat_at TIMESTAMPTZ,
  look_at TIMESTAMPTZ,
  unserved_at TIMESTAMPTZ,
  queue TEXT NOT NULL,
  wakeup JSONB,
  result TEXT,
  error TEXT,
  reply_instance_id TEXT,
  reply_execution_id BIGINT,
  reply_name TEXT,
  is_awaited BOOLEAN NOT NULL DEFAULT false,
  trace_context TEXT,
  limit_key TEXT,
  has_slot BOOLEAN,
  created_at TIMESTAMPTZ NOT NULL,
  updated_at TIMESTAMPTZ NOT NULL,
  ended_at TIMESTAMPTZ,
  dead_at TIMESTAMPTZ,
  CONSTRAINT queue_tasks_pkey PRIMARY KEY (id)
) WITH (
  fillfactor = 45, -- a claim updates the row once: the new versions of all rows fit on the page
  -- Unlike messages, tasks are kept for days. A vacuum reads the indexes of all of them, so its cost for each dead row is the
  -- inverse of the scale factor, and at the server's own speed it leaves the disk to others.
  autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
  vacuum_index_cleanup = on, vacuum_truncate = off
);
CREATE UNIQUE INDEX queue_tasks_name_key_idx ON queue_tasks (name, key) WHERE key IS NOT NULL;
CREATE INDEX queue_tasks_look_at_idx ON queue_tasks (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX queue_tasks_name_idx ON queue_tasks (name) WHERE unserved_at IS NOT NULL;
CREATE INDEX queue_tasks_queue_name_idx ON queue_tasks (queue, name) WHERE unserved_at IS NOT NULL AND has_slot IS NULL;
CREATE INDEX queue_tasks_ended_at_idx ON queue_tasks (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX queue_tasks_dead_at_id_idx ON queue_tasks (dead_at, id) WHERE dead_at IS NOT NULL;
-- Not by the status, which claims of tasks without limits change.
CREATE INDEX queue_tasks_name_has_slot_limit_key_run_at_id_idx
  ON queue_tasks (name, has_slot, limit_key, run_at, id) WHERE has_slot IS NOT NULL;

CREATE TABLE queue_task_attempts (
  task_id UUID NOT NULL,
  attempt INTEGER NOT NULL,
  worker_id TEXT NOT NULL,
  started_at TIMESTAMPTZ NOT NULL,
  ended_at TIMESTAMPTZ NOT NULL,
  outcome TEXT NOT NULL,
  error TEXT,
  CONSTRAINT queue_task_attempts_pkey PRIMARY KEY (task_id, attempt)
); -- written once, when the attempt ends

CREATE TABLE queue_task_callers (
  task_id UUID NOT NULL,
  signal TEXT NOT NULL,
  instance_id TEXT NOT NULL,
  execution_id BIGINT NOT NULL,
  CONSTRAINT queue_task_callers_pkey PRIMARY KEY (task_id, signal)
); -- written once, deleted when the task ends

CREATE TABLE queue_datasets (
  dataset_uuid UUID NOT NULL,
  name TEXT NOT NULL,
  active_version BIGINT,
  last_version BIGINT NOT NULL DEFAULT 0,
  created_at TIMESTAMPTZ NOT NULL,
  updated_at TIMESTAMPTZ NOT NULL,
  CONSTRAINT queue_datasets_pkey PRIMARY KEY (dataset_uuid)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX queue_datasets_name_idx ON queue_datasets (name);

CREATE TABLE queue_dataset_versions (
  dataset_uuid UUID NOT NULL,
  dataset_version BIGINT NOT NULL,
  status TEXT NOT NULL DEFAULT 'Building',
  record_count BIGINT,
  task_id UUID,
  attempt INTEGER,
  created_at TIMESTAMPTZ NOT NULL,
  committed_at TIMESTAMPTZ,
  CONSTRAINT queue_dataset_versions_pkey PRIMARY KEY (dataset_uuid, dataset_version)
) WITH (fillfactor = 80);

CREATE TABLE queue_dataset_batches (
  dataset_uuid UUID NOT NULL,
  dataset_version BIGINT NOT NULL,
  batch_uri TEXT NOT NULL,
  record_count BIGINT NOT NULL,
  status TEXT NOT NULL DEFAULT 'Buffered',
  output_uri TEXT,
  output_record_count BIGINT,
  task_id UUID NOT NULL,
  attempt INTEGER,
  created_at TIMESTAMPTZ NOT NULL,
  committed_at TIMESTAMPTZ,
  CONSTRAINT queue_dataset_batches_pkey PRIMARY KEY (dataset_uuid, dataset_version, batch_uri)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX queue_dataset_batches_task_id_idx ON queue_dataset_batches (task_id);

-- The processes that run work, and those that died within a day.
CREATE TABLE processes (
  id UUID NOT NULL,
  build TEXT NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  orchestrations TEXT[] NOT NULL, -- name@version
  activities TEXT[] NOT NULL,
  untagged BOOLEAN NOT NULL, -- whether it takes activities without a tag
  tags TEXT[], -- and with these; null: with any
  orchestration_slots INTEGER, -- this and the next: null without a limit
  activity_slots INTEGER,
  since TIMESTAMPTZ NOT NULL,
  seen_at TIMESTAMPTZ NOT NULL,
  listens BOOLEAN NOT NULL, -- its session that listens holds the advisory lock of dx_process_key
  found_dead_at TIMESTAMPTZ,
  orchestrations_in_use INTEGER, -- slots in use at seen_at, and the next
  activities_in_use INTEGER,
  CONSTRAINT processes_pkey PRIMARY KEY (id)
) WITH (fillfactor = 70);

CREATE TABLE queue_listeners (
  queue TEXT NOT NULL,
  seen_at TIMESTAMPTZ NOT NULL,
  CONSTRAINT queue_listeners_pkey PRIMARY KEY (queue)
) WITH (fillfactor = 70);

-- Orchestrations and tasks that start at certain times.
CREATE TABLE schedules (
  name TEXT NOT NULL,
  definition JSONB NOT NULL, -- timing, target, overlap, jitterMs, catchUp
  payload TEXT, -- JSON; null: processes that have its code make it
  code TEXT, -- names that code; null with a payload
  revision BIGINT NOT NULL DEFAULT 1, -- counts all changes
  created_at TIMESTAMPTZ NOT NULL,
  updated_at TIMESTAMPTZ NOT NULL, -- of the definition
  fired_until TIMESTAMPTZ NOT NULL, -- occurrences up to this time are settled
  next_at TIMESTAMPTZ, -- the next occurrence, without its jitter; null: not known yet, or none
  look_at TIMESTAMPTZ, -- when a scheduler has something to do; null: never
  paused_at TIMESTAMPTZ,
  pause_reason TEXT,
  queued JSONB, -- the occurrence that waits for the end of the last run
  requests JSONB NOT NULL DEFAULT '[]', -- runs by hand and backfills
  run_count BIGINT NOT NULL DEFAULT 0, -- number of the newest row of schedule_runs
  last_instance_id TEXT, -- what the last run started, as the next
  last_task_id UUID,
  CONSTRAINT schedules_pkey PRIMARY KEY (name)
) WITH (fillfactor = 70);

-- Claiming: the schedules that are due; when the next one is.
CREATE INDEX schedules_look_at_idx ON schedules (look_at) WHERE look_at IS NOT NULL;

-- Claiming: the schedules whose last run keeps an occurrence waiting.
CREATE INDEX schedules_name_idx ON schedules (name) WHERE queued IS NOT NULL;

-- What became of the last occurrences of each schedule.
CREATE TABLE schedule_runs (
  schedule_name TEXT NOT NULL,
  number BIGINT NOT NULL, -- from 1
  kind TEXT NOT NULL, -- Scheduled, Manual or Backfill
  occurrence_at TIMESTAMPTZ NOT NULL, -- of a Missed one the last
  missed_since TIMESTAMPTZ, -- of a Missed one the first
  outcome TEXT NOT NULL, -- Started, Skipped, Queued, Missed or Refused
  note TEXT, -- why
  instance_id TEXT,
  task_id UUID,
  settled_at TIMESTAMPTZ NOT NULL,
  CONSTRAINT schedule_runs_pkey PRIMARY KEY (schedule_name, number)
) WITH (fillfactor = 80);

-- The progress of an import of a SQLite file of Duroxide.
CREATE TABLE sqlite_imports (
  fingerprint TEXT NOT NULL, -- SHA-256 of what the file contains
  file TEXT NOT NULL, -- without its folder
  on_conflict TEXT NOT NULL,
  served TEXT[] NOT NULL,
  started_at TIMESTAMPTZ NOT NULL,
  finished_at TIMESTAMPTZ,
  last_instance_id TEXT,
  kept TEXT[] NOT NULL,
  replaced INTEGER NOT NULL DEFAULT 0,
  counts JSONB NOT NULL,
  CONSTRAINT sqlite_imports_pkey PRIMARY KEY (fingerprint)
);

-- Columns of the shared tables come last: from here on, running workers wait.
ALTER TABLE instances ADD COLUMN route TEXT NOT NULL DEFAULT '';

ALTER TABLE instances ADD COLUMN status TEXT NOT NULL DEFAULT 'Running';

-- Listing, counting: the instances of a status and a name, the newest first; listing statuses and names.
-- Without the ids, which may be long.
CREATE INDEX instances_status_orchestration_name_created_at_idx ON instances (status, orchestration_name, created_at);

-- Counting: how many instances there are of a name, version and status, where they are too many to count.
CREATE STATISTICS instances_name_version_status_stats (mcv)
  ON orchestration_name, orchestration_version, status FROM instances;

-- The name of its limit, null without one, and the key of its start. An instance that waits for a slot has the route that
-- it gets with the slot in limit_route; its own begins with ~, which no process serves. Its place: when its start is due,
-- in milliseconds, times 2^20, plus a number of orchestrator_queue_id_seq. With its first turn it has no place any more.
-- It has its slot until it is not Running.
ALTER TABLE instances ADD COLUMN limit_name TEXT;
ALTER TABLE instances ADD COLUMN limit_key TEXT;
ALTER TABLE instances ADD COLUMN limit_route TEXT;
ALTER TABLE instances ADD COLUMN limit_place BIGINT;

-- Limits: the instances that wait for a slot, key by key; those that have one, which have no limit_route (one that has
-- not begun still has a limit_place). Rows without a limit are not in it, nor is the column route, which changes while
-- instances run. One index for all: each index costs the start and the end of an instance without a limit 15 microseconds.
-- IS TRUE: a condition that no other index has, so that statistics of the past cannot make a look read all that run.
CREATE INDEX instances_limit_name_limit_route_limit_key_limit_place_idx
  ON instances (limit_name, limit_route, limit_key, limit_place) WHERE limit_name IS NOT NULL AND (status = 'Running') IS TRUE;

ALTER TABLE orchestrator_queue ADD COLUMN route TEXT NOT NULL DEFAULT '';

ALTER TABLE worker_queue ADD COLUMN route TEXT NOT NULL DEFAULT '';

-- The name of its limit and the key of its call. One that waits for a slot is visible at infinity: no process claims it.
ALTER TABLE worker_queue ADD COLUMN limit_name TEXT;
ALTER TABLE worker_queue ADD COLUMN limit_key TEXT;

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

-- Limits: the activities that wait for a slot, key by key. Rows without a limit are in neither index.
CREATE INDEX worker_queue_limit_name_route_limit_key_id_idx ON worker_queue (limit_name, route, limit_key, id)
  WHERE limit_name IS NOT NULL AND visible_at = 'infinity';

-- Limits: the activities that have a slot.
CREATE INDEX worker_queue_limit_name_limit_key_idx ON worker_queue (limit_name, limit_key)
  WHERE limit_name IS NOT NULL AND visible_at < 'infinity';

-- Claiming, renewing: the sessions of a worker.
CREATE INDEX sessions_worker_id_idx ON sessions (worker_id);
