-- Purpose: creates the types into which the functions of turns decode their JSON, once per call.
-- Effect on running workers: none; only new functions use them.

-- One turn, or one ack of a claimed turn. Fields that a caller leaves out are null.
CREATE TYPE dx_turn AS (
  instance_id text, -- an ack takes it from the lock
  execution_id bigint, -- null: nothing of the turn is stored but its left_ids
  orchestration_name text, -- with orchestration_version: the turn names its instance
  orchestration_version text,
  parent_instance_id text,
  status text,
  output text,
  text_at integer, -- position of the output in the texts of the call, where it does not stand in output
  next_version text,
  major integer,
  minor integer,
  patch integer,
  sets_custom_status boolean,
  custom_status text,
  cancelled_timers jsonb, -- {work_item: null}
  left_ids bigint[], -- messages of the batch that the turn has not read
  requeued bigint[], -- ids of events whose messages are inserted again
  worker bigint, -- position of the worker that activities are handed over to
  handover_limit bigint,
  spare bigint, -- slots that the worker keeps for activities that wait
  secret text, -- of the claim, from the lock; null: a turn without a claim, of an execution that has its row
  -- Optimistic turns, and first turns.
  last_event_id bigint,
  last_event_hash text, -- SHA-256 of its event_data in UTF-8, lower-case hexadecimal
  appends boolean, -- whether its event ids continue from there without a gap
  results bigint, -- how many results led to it
  clock_ms bigint -- what the caller takes for the database's clock, null if unknown
);

-- One start as a caller asks for it.
CREATE TYPE dx_start AS (
  instance_id text,
  orchestration_name text,
  orchestration_version text,
  work_item text,
  text_at integer,
  parent_instance_id text,
  major integer,
  minor integer,
  patch integer,
  delay_ms bigint,
  attributes jsonb, -- [{name, text, number, time_ms}], one of them not null
  limit_key text -- of its limit; null without one
);

-- One instance to be created, with its first execution.
CREATE TYPE dx_instance AS (
  instance_id text,
  orchestration_name text,
  orchestration_version text,
  parent_instance_id text,
  custom_status text,
  custom_status_version integer,
  status text,
  output text,
  text_at integer,
  major integer,
  minor integer,
  patch integer,
  served_version text, -- the version in its route
  or_newer boolean, -- whether its route accepts newer versions
  turn bigint, -- position of the first turn or of the start that creates it
  is_child boolean,
  attributes jsonb, -- as in dx_start
  limit_name text, -- its name if that has a limit
  limit_key text
);
