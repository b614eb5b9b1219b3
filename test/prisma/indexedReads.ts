/**
 * The statements that look for work of every kind beside large backlogs, each with the indexes that it reads, and rows
 * that make such a backlog.
 */
import { hash } from "node:crypto"

const now = 1_800_000_000_000
const at = (offsetMs: number) => `to_timestamp(${(now + offsetMs) / 1000})`
const uuid = "00000000-0000-4000-8000-000000000000"
const many = 20_000
const route = "1000.0.0 =1.0.0 O"

/** One row of every kind: statements are planned when there is work for them, the first on empty tables. */
export const first = `
  INSERT INTO instances VALUES ('i2', 'O', '1.0.0', 1, now(), now(), NULL, NULL, 0, '${route}') ON CONFLICT DO NOTHING;
  INSERT INTO executions VALUES ('i2', 1, 'Running', NULL, now(), NULL, 1000, 0, 0);
  INSERT INTO history VALUES ('i2', 1, 1, 'Event', '{"type":"X"}', now());
  INSERT INTO kv_store VALUES ('i2', 'k', 'v', 1);
  INSERT INTO kv_delta VALUES ('i2', 'k', 'v', 1);
  INSERT INTO instance_locks VALUES ('i2', '${uuid}', ${now + 60_000}, ${now});
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, lock_token, locked_until)
    VALUES ('i2', '{}', ${at(-1000)}, now(), '${uuid}', ${now + 60_000});
  INSERT INTO sessions VALUES ('s1', 'me', ${now + 60_000}, 1);
  INSERT INTO worker_queue (work_item, visible_at, created_at, session_id, lock_token, locked_until, route)
    VALUES ('{}', ${at(-1000)}, now(), 's1', '${uuid}', ${now + 60_000}, 'A');`

/**
 * The backlog: our instances and their messages, with work of other processes in front of them; activities likewise.
 */
export const queued = `
  INSERT INTO instances SELECT 'i' || g, 'O', '1.0.0', 1, to_timestamp(g), now(), 'parent' || g % 1000, NULL, 0, '${route}'
    FROM generate_series(1, ${many}) AS g ON CONFLICT DO NOTHING;
  INSERT INTO instances SELECT 'start' || g, 'O', NULL, 1, now(), now(), NULL, NULL, 0, '${route}'
    FROM generate_series(1, ${many}) AS g;

  -- Timers that are not due, a busy instance with many messages, live locks, and one instance to claim.
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    SELECT 'i' || g, '{}', ${at(60_000)}, now(), '${route}' FROM generate_series(1, ${many}) AS g;
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    SELECT 'i1', '{}', ${at(60_000)}, now(), '${route}' FROM generate_series(1, ${many}) AS g;
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    SELECT 'timers', '{}', ${at(60_000)}, now(), '${route}' FROM generate_series(1, ${many}) AS g;
  -- Starts, and a few of children.
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    SELECT 'start' || g, '{"StartOrchestration":{"input":"","parent_instance":null}}', ${at(60_000)}, now(), '${route}'
    FROM generate_series(1, ${many}) AS g;
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    SELECT 'child' || g, '{"StartOrchestration":{"input":"","parent_instance":"parent' || g || '"}}', ${at(60_000)},
      now(), '${route}'
    FROM generate_series(1, 100) AS g;
  -- For processes of Duroxide, for other definitions, and for no process.
  INSERT INTO instances SELECT 'foreign' || g, 'O', '1.0.0', 1, now(), now(), NULL, NULL, 0,
      CASE WHEN g <= 100 THEN '1000.0.0 =1.0.0 P' || g ELSE '0.1.30 =1.0.0 O' END
    FROM generate_series(1, ${many}) AS g;
  INSERT INTO instances VALUES ('hot', 'O', '1.0.0', 1, now(), now(), NULL, NULL, 0, '${route}');
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
    SELECT 'foreign' || g, '{}', ${at(-5000)}, now() FROM generate_series(1, ${many}) AS g;
  -- Ten of them have a route that their instances no longer have.
  UPDATE instances SET route = '1000.0.0 =2.0.0 P' WHERE instance_id IN (SELECT 'foreign' || g FROM generate_series(1, 10) AS g);
  ALTER TABLE orchestrator_queue DISABLE TRIGGER USER;
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
    SELECT 'orphan' || g, '{}', ${at(-5000)} + g * interval '1 us', now() FROM generate_series(1, ${many}) AS g;
  ALTER TABLE orchestrator_queue ENABLE TRIGGER USER;
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    SELECT 'hot', '{}', ${at(-2000)}, now(), '${route}' FROM generate_series(1, 2000) AS g;
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    VALUES ('i1', '{}', ${at(-1000)}, now(), '${route}');

  -- Running activities, and one claimable activity of each kind after many others.
  INSERT INTO worker_queue
      (work_item, visible_at, created_at, lock_token, locked_until, instance_id, execution_id, activity_id, route)
    SELECT '{}', ${at(-3000)}, now(), '${uuid}', ${now + 60_000}, 'i' || g, 1, g, 'A' FROM generate_series(1, 100) AS g;
  INSERT INTO worker_queue (work_item, visible_at, created_at, instance_id, execution_id, activity_id, route)
    SELECT '{}', ${at(-2000)} - g * interval '1 us', now(), 'i' || g, 1, g, 'A' FROM generate_series(1, ${many}) AS g;
  INSERT INTO worker_queue (work_item, visible_at, created_at, route)
    SELECT '{}', ${at(-9000)}, now(), 'B' || g % 100 FROM generate_series(1, ${many}) AS g;
  INSERT INTO worker_queue (work_item, visible_at, created_at, route)
    SELECT '{}', ${at(60_000)}, now(), 'Delayed' FROM generate_series(1, ${many}) AS g;
  INSERT INTO worker_queue (work_item, visible_at, created_at, tag, route)
    SELECT '{}', ${at(60_000)}, now(), 'gpu', 'Delayed #gpu' FROM generate_series(1, ${many}) AS g;
  INSERT INTO worker_queue (work_item, visible_at, created_at, route) VALUES ('{}', ${at(-1000)}, now(), 'Delayed');
  INSERT INTO worker_queue (work_item, visible_at, created_at, tag, route)
    SELECT '{}', ${at(-2000)} - g * interval '1 us', now(), 'common', 'A #common' FROM generate_series(1, ${many}) AS g;
  INSERT INTO worker_queue (work_item, visible_at, created_at, session_id, route)
    SELECT '{}', ${at(-9000)}, now(), 's' || g, 'B' FROM generate_series(1, ${many}) AS g;
  INSERT INTO worker_queue (work_item, visible_at, created_at, session_id, route)
    SELECT '{}', ${at(-9000)}, now(), 'many' || g, 'Many' FROM generate_series(1, ${many}) AS g;
  INSERT INTO worker_queue (work_item, visible_at, created_at, session_id, route)
    SELECT '{}', ${at(-9000)}, now(), 's5', 'A' FROM generate_series(1, ${many}) AS g;
  INSERT INTO worker_queue (work_item, visible_at, created_at, tag, route)
    VALUES ('{}', ${at(-1000)}, now(), 'rare', 'A #rare');
  INSERT INTO worker_queue (work_item, visible_at, created_at, session_id, lock_token, locked_until, route)
    VALUES ('{}', ${at(-1000)}, now(), 's1', '${uuid}', ${now + 60_000}, 'A');
  INSERT INTO worker_queue (work_item, visible_at, created_at, session_id, route)
    VALUES ('{}', ${at(-1000)}, now(), 'mine', 'A');

  -- A limit with slots in use, one key with much that waits and others with little; tokens of many keys.
  INSERT INTO limits (kind, name, concurrency, key_concurrency, key_rate, key_rate_ms, key_burst, since)
    VALUES ('activity', 'Limited', 20, 5, 1000, 1000, 10, now());
  INSERT INTO limit_keys (kind, name, key, is_own, free_ms)
    SELECT 'activity', 'Limited', 'k' || g, false, ${now - 1000} + g FROM generate_series(1, ${many}) AS g;
  INSERT INTO worker_queue (work_item, visible_at, created_at, route, limit_name, limit_key, lock_token, locked_until)
    SELECT '{}', ${at(-1000)}, now(), 'Limited', 'Limited', 'k1', '${uuid}', ${
  now + 60_000
} FROM generate_series(1, 5) AS g;
  INSERT INTO worker_queue (work_item, visible_at, created_at, route, limit_name, limit_key)
    SELECT '{}', 'infinity', now(), 'Limited', 'Limited', CASE WHEN g < ${many} - 20 THEN 'k1' ELSE 'k' || g END
    FROM generate_series(1, ${many}) AS g;

  -- The same of instances: none has begun.
  INSERT INTO limits (kind, name, concurrency, key_concurrency, key_rate, key_rate_ms, key_burst, since)
    VALUES ('orchestration', 'LimitedOne', 20, 5, 1000, 1000, 10, now());
  INSERT INTO instances
      (instance_id, orchestration_name, current_execution_id, created_at, updated_at, route, limit_name, limit_key)
    SELECT 'has' || g, 'LimitedOne', 1, now(), now(), '1000.0.0 =1.0.0 LimitedOne', 'LimitedOne', 'k1'
    FROM generate_series(1, 5) AS g;
  INSERT INTO instances
      (instance_id, orchestration_name, current_execution_id, created_at, updated_at, route, limit_name, limit_key,
       limit_route, limit_place)
    SELECT 'waits' || g, 'LimitedOne', 1, now(), now(), '~1000.0.0 =1.0.0 LimitedOne', 'LimitedOne',
      CASE WHEN g < ${many} - 20 THEN 'k1' ELSE 'k' || g END, '1000.0.0 =1.0.0 LimitedOne',
      dx_limit_place(${now - 1000}, g)
    FROM generate_series(1, ${many}) AS g;
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    SELECT 'waits' || g, '{"StartOrchestration":{"input":"","parent_instance":null}}', ${at(-1000)}, now(),
      '~1000.0.0 =1.0.0 LimitedOne'
    FROM generate_series(1, ${many}) AS g;`

/** Work that is done before the backlog comes. */
export const done = {
  orchestrator_queue: `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
    SELECT 'done' || g, '{}', now(), now() FROM generate_series(1, ${many}) AS g`,
  worker_queue: `INSERT INTO worker_queue (work_item, visible_at, created_at, route)
    SELECT '{}', now(), now(), 'A' FROM generate_series(1, ${many}) AS g`
}

/** The tables that are empty while all processes are idle. */
export const held = `
  INSERT INTO executions SELECT 'i' || g, e, 'Running', NULL, now(), NULL, 1000, 0, 0
    FROM generate_series(1, ${many}) AS g, generate_series(1, 2) AS e ON CONFLICT DO NOTHING;
  INSERT INTO executions SELECT 'i1', e, 'ContinuedAsNew', NULL, now(), NULL, 1000, 0, 0
    FROM generate_series(3, ${many}) AS e;
  INSERT INTO history SELECT 'i' || g % 100, 1, g, 'Event', '{"type":"X"}', now() FROM generate_series(1, ${many}) AS g;
  INSERT INTO kv_store SELECT 'i' || g % 1000, 'k' || g, 'v', 1 FROM generate_series(1, ${many}) AS g;
  INSERT INTO kv_delta SELECT 'i' || g % 1000, 'k' || g, 'v', 1 FROM generate_series(1, ${many}) AS g;
  INSERT INTO attributes SELECT 'i' || g, a.name, a.text_value, a.number_value, a.time_value, to_timestamp(g)
    FROM generate_series(1, ${many}) AS g, LATERAL (VALUES
      ('customer', 'c' || g % 1000, NULL::float8, NULL::timestamptz), ('amount', NULL, g, NULL), ('due', NULL, NULL, to_timestamp(g))
    ) AS a (name, text_value, number_value, time_value);
  INSERT INTO sessions SELECT 's' || g, 'other', ${now + 60_000}, 1 FROM generate_series(1, ${many}) AS g
    ON CONFLICT DO NOTHING;
  INSERT INTO sessions VALUES ('mine', 'me', ${now + 60_000}, 1);
  INSERT INTO instance_locks SELECT 'locked' || g, 'x', ${now + 60_000}, 1 FROM generate_series(1, ${many}) AS g;
  INSERT INTO instance_locks SELECT 'paused' || g, '', ${now - 60_000} + g % 2 * 120000, 1
    FROM generate_series(1, ${many}) AS g;
  INSERT INTO progress_streams (id, instance_id, name, next_offset, next_bytes, appended_at)
    SELECT g, 'i' || g, 's', 3, 3, now() FROM generate_series(1, ${many}) AS g ON CONFLICT DO NOTHING;
  INSERT INTO progress_streams (id, instance_id, name, next_offset, next_bytes, appended_at)
    VALUES (${many} + 1, 'idle', 's', 3, 3, now()) ON CONFLICT DO NOTHING;
  INSERT INTO progress_chunks SELECT g, c, c, '1/1/1/1/x', c + 1, '1', now()
    FROM generate_series(1, ${many} + 1) AS g, generate_series(0, 2) AS c ON CONFLICT DO NOTHING;
  INSERT INTO operator_actions (actor, action, target, details, outcome)
    SELECT 'a', 'retry', 'i' || g, '', 'done' FROM generate_series(1, ${many}) AS g;
  -- Five schedules are due, three wait for the end of a run.
  INSERT INTO schedules
      (name, definition, payload, created_at, updated_at, fired_until, look_at, queued, last_instance_id)
    SELECT 'schedule' || g, '{}', '{}', now(), now(), now(), CASE WHEN g <= 5 THEN ${at(-1000)} ELSE ${at(60_000)} END,
      CASE WHEN g BETWEEN 6 AND 8 THEN '{}'::jsonb END, 'i1'
    FROM generate_series(1, ${many}) AS g;
  INSERT INTO schedule_runs (schedule_name, number, kind, occurrence_at, outcome, settled_at)
    SELECT 'schedule' || g % 200, g, 'Scheduled', now(), 'Skipped', now() FROM generate_series(1, ${many}) AS g;
  INSERT INTO instance_locks VALUES ('hot', 'x', ${now + 60_000}, 1), ('i2', '${uuid}', ${now + 60_000}, ${now})
    ON CONFLICT DO NOTHING;`

const token = `${uuid}.i2`
const lock = `(SELECT id || '.${uuid}' FROM worker_queue WHERE session_id = 's1' AND lock_token IS NOT NULL LIMIT 1)`
const acks = (fields: string) => `'[{"token":"${token}","execution_id":1${fields}}]'`

/** Instances that wait for an activity, which is claimed; one of them for many timers as well. */
export const idle = ["idle", "timers"].map((id) => `
  INSERT INTO instances VALUES ('${id}', 'O', '1.0.0', 1, now(), now(), NULL, NULL, 0, '${route}') ON CONFLICT DO NOTHING;
  INSERT INTO executions VALUES ('${id}', 1, 'Running', NULL, now(), NULL, 1000, 0, 0) ON CONFLICT DO NOTHING;
  INSERT INTO history VALUES ('${id}', 1, 1, 'Event', '{"type":"X"}', now()) ON CONFLICT DO NOTHING;
  INSERT INTO worker_queue
      (work_item, visible_at, created_at, lock_token, locked_until, instance_id, execution_id, activity_id, route)
    SELECT '{}', ${at(-1000)}, now(), '${uuid}', ${now + 60_000}, '${id}', 1, 1, 'A'
    WHERE NOT EXISTS (SELECT FROM worker_queue WHERE instance_id = '${id}');`).join("")

const lastEvent = `"last_event_hash":"${hash("sha256", "{\"type\":\"X\"}")}"`

const results = (instanceId: string) =>
  `(SELECT jsonb_build_array(jsonb_build_object('ack', 1, 'token', id || '.${uuid}', 'instance_id', instance_id,
     'work_item', '{}')) FROM worker_queue WHERE instance_id = '${instanceId}')`

/** Activities, cancellations, messages and a worker for whom none of its name waits. */
const handedOver = `'[{"ack":1,"work_item":"{}","name":"Idle"}]',
       '[{"ack":1,"instance_id":"idle","execution_id":1,"activity_id":1}]', '[{"ack":1,"instance_id":"i3","work_item":"{}"}]',
       '[{"lock_timeout_ms":1000,"names":["Idle"],"untagged":true,"tags":null}]'`

/** One activity and such a worker. */
const plain = `'[{"ack":1,"work_item":"{}","name":"Idle"}]', NULL, NULL,
       '[{"lock_timeout_ms":1000,"names":["Idle"],"untagged":true,"tags":null}]'`

/** By name: the statement, the indexes it must use, and how many entries it may read. */
export const cases: Readonly<Record<string, readonly [sql: string, indexes: ReadonlyArray<string>, most: number]>> = {
  "fetchOrchestrationItems": [
    `SELECT * FROM dx_fetch_orchestration_items(5, 1000, '{1000,0,0}', '{1000,9,9}', '{O,Q}', '{1.0.0,1.0.0}',
       p_history_limit => 50, p_now_ms => ${now})`,
    [
      "orchestrator_queue_route_visible_at_id_idx",
      "orchestrator_queue_instance_id_due_at_id_idx",
      "orchestrator_queue_pkey",
      "instance_locks_pkey",
      "instances_pkey",
      "history_pkey",
      "kv_store_pkey"
    ],
    // The busy instance's 2,000 messages, skipped once; the 100 other routes; the returned history.
    3000
  ],
  "fetchOrchestrationItems of instances with a limit": [
    `SELECT * FROM dx_fetch_orchestration_items(5, 1000, '{1000,0,0}', '{1000,9,9}', '{LimitedOne}', '{1.0.0}',
       p_now_ms => ${now})`,
    [
      "limits_pkey",
      "limit_keys_pkey",
      "instances_limit_name_limit_route_limit_key_limit_place_idx"
    ],
    // Those with slots, for each key that is visited, and the routes.
    600
  ],
  "fetchOrchestrationItems of a definition without work": [
    `SELECT * FROM dx_fetch_orchestration_items(5, 1000, '{1000,0,0}', '{1000,9,9}', '{Q}', '{1.0.0}', p_now_ms => ${now})`,
    ["orchestrator_queue_route_visible_at_id_idx"],
    150
  ],
  "fetchOrchestrationItems of every definition, orphans too": [
    `SELECT * FROM dx_fetch_orchestration_items(5, 1000, NULL, NULL, p_orphans => true, p_now_ms => ${now})`,
    ["orchestrator_queue_route_visible_at_id_idx", "history_pkey"],
    // Ten rows of each of the 103 routes.
    1500
  ],
  "fetchWorkItems of activities with a limit": [
    `SELECT * FROM dx_fetch_work_items(5, 1000, true, NULL, NULL, NULL, '{Limited}', p_now_ms => ${now})`,
    [
      "limits_pkey",
      "limit_keys_pkey",
      "limit_keys_kind_name_free_ms_idx",
      "worker_queue_limit_name_route_limit_key_id_idx",
      "worker_queue_limit_name_limit_key_idx"
    ],
    // Those with slots, for each key that is visited, and the routes.
    400
  ],
  "ackOrchestrationItems, in the middle": [
    `SELECT dx_ack_orchestration_items(${
      acks("")
    }, '[{"ack":1,"event_id":99999,"event_type":"TimerFired","event_data":"{}"}]', NULL,
       '[{"ack":1,"work_item":"{}","name":"A"}]', '[{"ack":1,"instance_id":"i7","execution_id":1,"activity_id":7}]',
       '[{"ack":1,"instance_id":"i3","work_item":"{}"}]', p_now_ms => ${now})`,
    ["instance_locks_pkey", "history_pkey", "worker_queue_instance_id_execution_id_activity_id_idx"],
    50
  ],
  "ackOrchestrationItems, at the start and end": [
    `SELECT dx_ack_orchestration_items(
       ${
      acks(
        ",\"orchestration_name\":\"O\",\"orchestration_version\":\"1\",\"parent_instance_id\":\"i9\"," +
          "\"status\":\"Completed\",\"major\":1000,\"minor\":0,\"patch\":0"
      )
    },
       '[{"ack":1,"event_id":99999,"event_type":"TimerFired","event_data":"{}"}]', '[{"ack":1,"action":"clear_all"}]', NULL, NULL, NULL, p_now_ms => ${now})`,
    ["instances_pkey", "executions_pkey", "kv_delta_pkey", "kv_store_pkey"],
    500
  ],
  "ackOrchestrationItems with changes of attributes": [
    `SELECT dx_ack_orchestration_items(${acks("")}, NULL,
       '[{"ack":1,"action":"attribute","name":"customer","text":"c"},{"ack":1,"action":"attribute","name":"due"}]',
       NULL, NULL, NULL, p_now_ms => ${now})`,
    ["instances_pkey", "attributes_pkey"],
    50
  ],
  "ackOrchestrationItems, of a child that begins, and continued as new": [
    `SELECT dx_ack_orchestration_items(${acks(",\"status\":\"ContinuedAsNew\"")}, NULL, NULL, NULL, NULL,
       '[{"ack":1,"instance_id":"orphan7","work_item":"{}","start":{"orchestration_name":"O","parent_instance_id":"i2",
         "major":1000,"minor":0,"patch":0}}]', p_now_ms => ${now})`,
    ["instances_pkey", "executions_pkey", "orchestrator_queue_instance_id_due_at_id_idx"],
    100
  ],
  "abandonOrchestrationItems": [
    `SELECT dx_abandon_orchestration_items('[{"token":"${token}"}]', ${now})`,
    ["instance_locks_pkey", "orchestrator_queue_instance_id_due_at_id_idx"],
    20
  ],
  "renewOrchestrationItemLocks": [
    `SELECT dx_renew_orchestration_item_locks('[{"token":"${token}","extend_for_ms":1}]', ${now})`,
    ["instance_locks_pkey", "orchestrator_queue_instance_id_due_at_id_idx"],
    20
  ],
  "deferMessages": [
    `SELECT dx_defer_messages('[{"token":"${token}","ids":[1,2],"delay_ms":1}]', ${now})`,
    ["orchestrator_queue_pkey"],
    20
  ],
  "sweepMessages": [
    `SELECT * FROM dx_sweep_messages(1, 100, NULL, ${now})`,
    ["orchestrator_queue_route_visible_at_id_idx", "orchestrator_queue_pkey", "instances_pkey", "history_pkey"],
    // Of each route the newest 1,000, and the instance of each: 3,100 rows here. Ten of them move, and 100 have no
    // route.
    7_500
  ],
  "sweepMessages, in the middle": [
    `SELECT * FROM dx_sweep_messages(1000000, 100, '${(now - 5000) * 1000 + many / 2}.1', ${now})`,
    ["orchestrator_queue_route_visible_at_id_idx", "instances_pkey"],
    400
  ],
  "readBacklog": [
    `SELECT * FROM dx_read_backlog(10, ${now})`,
    [
      "orchestrator_queue_route_visible_at_id_idx",
      "instance_locks_pkey",
      "worker_queue_route_visible_at_id_idx",
      "worker_queue_route_visible_at_id_session_idx",
      "blocked_instances_pkey",
      "instances_limit_name_limit_route_limit_key_limit_place_idx"
    ],
    // Ten rows of each of the 103 routes of both queues, the locks of the instances, and the 60,000 executions, which
    // fill less than 1,000 pages.
    65_000
  ],
  "a message's route": [
    `SELECT dx_enqueue_for_orchestrator('[{"instance_id":"i7","work_item":"{}"},{"instance_id":"none","work_item":"{}"}]', p_now_ms => ${now})`,
    ["instances_pkey"],
    20
  ],
  "a message's route, before the start is due": [
    `SELECT dx_enqueue_for_orchestrator('[{"instance_id":"start7","work_item":"{}"}]', p_now_ms => ${now})`,
    ["instances_pkey", "history_pkey", "orchestrator_queue_instance_id_due_at_id_idx"],
    20
  ],
  "the route of a message to an instance of Duroxide": [
    "UPDATE instances SET route = '' WHERE instance_id = 'i1'; SELECT dx_message_route('i1', '{}')",
    ["instances_pkey", "executions_pkey"],
    20
  ],
  "startOrchestrations": [
    `SELECT dx_start_orchestrations('[{"instance_id":"new","orchestration_name":"O","work_item":"{}","major":1,
       "minor":0,"patch":0},{"instance_id":"i5","orchestration_name":"O","work_item":"{}"}]', p_now_ms => ${now})`,
    ["instances_pkey", "executions_pkey", "orchestrator_queue_instance_id_due_at_id_idx"],
    20
  ],
  "startOrchestrations with a first turn": [
    `SELECT dx_start_orchestrations('[{"instance_id":"new","orchestration_name":"O","work_item":"{}","major":1,
       "minor":0,"patch":0}]', '[{"execution_id":1,"worker":1,"handover_limit":2}]',
       '[{"ack":1,"event_id":1,"event_type":"TimerFired","event_data":"{}"}]', NULL, ${handedOver}, p_now_ms => ${now})`,
    [
      "instances_pkey",
      "executions_pkey",
      "instance_locks_pkey",
      "history_pkey",
      "orchestrator_queue_instance_id_due_at_id_idx",
      "worker_queue_route_visible_at_id_idx"
    ],
    // One look at each of the 103 routes.
    250
  ],
  "advanceOrchestrations": [
    `SELECT dx_advance_orchestrations('[{"instance_id":"idle","execution_id":1,"last_event_id":1,
       ${lastEvent},"results":1,"worker":1,"handover_limit":2,"status":"ContinuedAsNew"}]', ${results("idle")},
       '[{"ack":1,"event_id":99999,"event_type":"TimerFired","event_data":"{}"}]', '[{"ack":1,"action":"clear_all"}]',
       ${handedOver}, p_now_ms => ${now})`,
    [
      "instances_pkey",
      "executions_pkey",
      "instance_locks_pkey",
      "history_pkey",
      "kv_delta_pkey",
      "kv_store_pkey",
      "orchestrator_queue_instance_id_due_at_id_idx",
      "worker_queue_pkey",
      "worker_queue_instance_id_execution_id_activity_id_idx",
      "worker_queue_route_visible_at_id_idx"
    ],
    300
  ],
  "startOrchestrations with a plain first turn": [
    `SELECT dx_start_orchestrations('[{"instance_id":"new","orchestration_name":"O","work_item":"{}","major":1,
       "minor":0,"patch":0}]', '[{"execution_id":1,"orchestration_name":"O","orchestration_version":"1.0.0","major":1,
       "minor":0,"patch":0,"appends":true,"worker":1,"handover_limit":2,"spare":0}]',
       '[{"ack":1,"event_id":1,"event_type":"TimerFired","event_data":"{}"}]', NULL, ${plain}, p_now_ms => ${now})`,
    [
      "instances_pkey",
      "executions_pkey",
      "instance_locks_pkey",
      "history_pkey",
      "orchestrator_queue_instance_id_due_at_id_idx",
      "worker_queue_route_visible_at_id_idx"
    ],
    250
  ],
  "advanceOrchestrations with a plain turn, beside many timers": [
    `SELECT dx_advance_orchestrations('[{"instance_id":"timers","execution_id":1,"last_event_id":1,${lastEvent},"results":1,
       "appends":true,"worker":1,"handover_limit":2,"spare":0}]', ${results("timers")},
       '[{"ack":1,"event_id":2,"event_type":"TimerFired","event_data":"{}"}]', NULL, ${plain}, p_now_ms => ${now})`,
    [
      "instances_pkey",
      "executions_pkey",
      "instance_locks_pkey",
      "history_pkey",
      "orchestrator_queue_instance_id_due_at_id_idx",
      "worker_queue_pkey",
      "worker_queue_route_visible_at_id_idx"
    ],
    250
  ],
  "advanceOrchestrations with a plain turn, the last one": [
    `SELECT dx_advance_orchestrations('[{"instance_id":"idle","execution_id":1,"last_event_id":1,${lastEvent},"results":1,
       "appends":true,"status":"Completed"}]', ${results("idle")},
       '[{"ack":1,"event_id":2,"event_type":"TimerFired","event_data":"{}"}]', NULL, NULL, NULL, NULL, NULL, p_now_ms => ${now})`,
    ["executions_pkey", "history_pkey", "kv_delta_pkey", "worker_queue_pkey"],
    20
  ],
  "advanceOrchestrations of an instance that has a message": [
    `SELECT dx_advance_orchestrations('[{"instance_id":"i1","execution_id":1,"last_event_id":1,"results":1}]',
       ${results("idle")}, NULL, NULL, NULL, NULL, NULL, NULL, p_now_ms => ${now})`,
    ["orchestrator_queue_instance_id_due_at_id_idx", "worker_queue_pkey"],
    20
  ],
  "fetchWorkItems of a name, behind many that are delayed": [
    `SELECT * FROM dx_fetch_work_items(5, 1000, true, '{gpu}', NULL, NULL, '{Delayed}', p_now_ms => ${now})`,
    ["worker_queue_route_visible_at_id_idx", "worker_queue_pkey"],
    150
  ],
  "fetchWorkItems of a name": [
    `SELECT * FROM dx_fetch_work_items(5, 1000, true, '{}', NULL, NULL, '{A,None}', p_now_ms => ${now})`,
    ["worker_queue_route_visible_at_id_idx", "worker_queue_pkey"],
    // The 100 running ones.
    300
  ],
  "fetchWorkItems of every name and tag": [
    `SELECT * FROM dx_fetch_work_items(5, 1000, true, NULL, NULL, NULL, p_now_ms => ${now})`,
    ["worker_queue_route_visible_at_id_idx", "worker_queue_pkey"],
    // Five rows of each of the 103 routes.
    1000
  ],
  "fetchWorkItems of a rare tag": [
    `SELECT * FROM dx_fetch_work_items(5, 1000, false, '{rare,none}', NULL, NULL, '{A}', p_now_ms => ${now})`,
    ["worker_queue_route_visible_at_id_idx"],
    150
  ],
  "fetchWorkItems of sessions": [
    `SELECT * FROM dx_fetch_work_items(5, 1000, false, '{rare}', 'me', 1000, '{A,None}', p_now_ms => ${now})`,
    ["worker_queue_route_visible_at_id_idx"],
    200
  ],
  "fetchWorkItems of sessions without a tag": [
    `SELECT * FROM dx_fetch_work_items(50, 1000, true, '{}', 'me', 1000, '{A,None}', p_now_ms => ${now})`,
    ["worker_queue_route_session_id_visible_at_id_idx", "sessions_pkey", "sessions_worker_id_idx"],
    // The 100 running ones; for the 50 also row versions that were rolled back.
    1000
  ],
  "fetchWorkItems of many sessions": [
    `SELECT * FROM dx_fetch_work_items(5, 1000, true, '{}', 'me', 1000, '{Many}', p_now_ms => ${now})`,
    ["worker_queue_route_visible_at_id_session_idx", "sessions_pkey"],
    // 32 sessions, then the 256 oldest activities.
    700
  ],
  "ackWorkItems": [
    `SELECT dx_ack_work_items(jsonb_build_array(jsonb_build_object(
       'token', ${lock}, 'instance_id', 'i3', 'work_item', '{}')), p_now_ms => ${now})`,
    ["worker_queue_pkey", "sessions_pkey"],
    20
  ],
  "abandonWorkItems": [
    `SELECT dx_abandon_work_items(jsonb_build_array(jsonb_build_object('token', ${lock})), ${now})`,
    ["worker_queue_pkey"],
    20
  ],
  "renewWorkItemLocks": [
    `SELECT dx_renew_work_item_locks(jsonb_build_array(jsonb_build_object('token', ${lock}, 'extend_for_ms', 1)), ${now})`,
    ["worker_queue_pkey", "sessions_pkey"],
    20
  ],
  "holdInstances": [
    "SELECT * FROM dx_hold_instances('{i5,unknown}', '{}', 1000)",
    [
      "instance_locks_pkey",
      "instances_pkey",
      "instances_parent_instance_id_created_at_idx",
      "executions_pkey",
      "orchestrator_queue_instance_id_due_at_id_idx",
      "orchestrator_queue_instance_id_idx"
    ],
    // The 100 queued starts of other children, of any parent.
    400
  ],
  "deleteInstances": [
    "SELECT * FROM dx_delete_instances('{i5,unknown}', '{}')",
    [
      "instance_locks_pkey",
      "instances_pkey",
      "instances_parent_instance_id_created_at_idx",
      "executions_pkey",
      "history_pkey",
      "kv_store_pkey",
      "kv_delta_pkey",
      "attributes_pkey",
      "removed_events_pkey",
      "progress_streams_instance_id_name_idx",
      "progress_streams_pkey",
      "progress_chunks_pkey",
      "worker_queue_instance_id_execution_id_activity_id_idx",
      "orchestrator_queue_instance_id_due_at_id_idx",
      "orchestrator_queue_instance_id_idx"
    ],
    // The 100 queued starts of other children, of any parent.
    400
  ],
  "pruneExecutions": [
    "SELECT * FROM dx_prune_executions('i5', 1, NULL)",
    ["executions_pkey"],
    20
  ],
  "appendChunks": [
    `SELECT dx_append_chunks(
      jsonb_build_array(jsonb_build_object(
        'token', (SELECT id || '.${uuid}' FROM worker_queue WHERE instance_id = 'idle' LIMIT 1),
        'instance_id', 'idle', 'stream', 's', 'writer', '1/1/1/1/x', 'number', 3, 'is_repeat', true,
        'chunks', '["1", "2"]'::jsonb, 'keep_chunks', 3, 'keep_bytes', 100
      )), ${now}
    )`,
    [
      "progress_streams_instance_id_name_idx",
      "progress_streams_pkey",
      "progress_chunks_pkey",
      "worker_queue_pkey",
      "executions_pkey"
    ],
    40
  ],
  "readChunks": [
    `SELECT * FROM dx_read_chunks(
      '[{"instance_id":"i5","stream":"s","max_bytes":1000},{"instance_id":"unknown","stream":"s","max_bytes":1000}]'
    )`,
    ["instances_pkey", "executions_pkey", "progress_streams_instance_id_name_idx", "progress_chunks_pkey"],
    20
  ],
  "resumeChunks": [
    "SELECT * FROM dx_resume_chunks('i5', 's', '1/1/')",
    ["progress_streams_instance_id_name_idx", "progress_chunks_pkey"],
    20
  ],
  "listStreams": ["SELECT * FROM dx_read_streams('i5')", ["progress_streams_instance_id_name_idx"], 20],
  "readHistory": ["SELECT * FROM dx_read_history('i5', NULL, 0, 1000000)", ["executions_pkey", "history_pkey"], 250],
  "readEnds": [
    "SELECT * FROM dx_read_ends('{i5,i6,unknown}', 1000000)",
    ["instances_pkey", "executions_pkey"],
    20
  ],
  "readPaused": ["SELECT dx_read_paused()", ["paused_pkey"], 20],
  "listActions": [
    "SELECT * FROM operator_actions WHERE id < 5000 ORDER BY id DESC LIMIT 21",
    ["operator_actions_pkey"],
    21
  ],
  "readNextDue": [
    `SELECT * FROM dx_read_next_due(${now})`,
    [
      "orchestrator_queue_route_visible_at_id_idx",
      "worker_queue_route_visible_at_id_idx",
      "worker_queue_route_visible_at_id_session_idx",
      "instance_locks_locked_until_idx"
    ],
    // A look for each of the 104 routes of messages and 108 of activities, and an entry where something is due.
    250
  ],
  "readLocks": [
    `SELECT * FROM dx_read_locks(${now})`,
    [
      "orchestrator_queue_route_visible_at_id_idx",
      "worker_queue_route_visible_at_id_idx",
      "worker_queue_route_visible_at_id_session_idx",
      "instance_locks_pkey",
      "sessions_pkey"
    ],
    // At most 1,000 rows of a route, and the lock of the instance or session of each.
    25_000
  ],
  "readProgress of what has not changed": [
    `SELECT * FROM dx_read_progress('[
       {"instance_id": "i5", "key": "k1", "execution_id": 1, "last_event_id": ${many - 95}},
       {"instance_id": "unknown", "key": "k1", "execution_id": 0, "last_event_id": 0}
     ]', 1000000)`,
    ["instances_pkey", "executions_pkey", "history_pkey"],
    20
  ],
  "readProgress": [
    `SELECT * FROM dx_read_progress('[
       {"instance_id": "i5", "key": "k1", "execution_id": 0, "last_event_id": 0},
       {"instance_id": "i6", "key": null, "execution_id": 0, "last_event_id": 0},
       {"instance_id": "unknown", "key": "k1", "execution_id": 0, "last_event_id": 0}
     ]', 1000000)`,
    ["instances_pkey", "executions_pkey", "history_pkey", "kv_delta_pkey", "kv_store_pkey"],
    30
  ],
  "readInstances": ["SELECT * FROM dx_read_instances('{i5,i6,unknown}')", ["instances_pkey", "executions_pkey"], 20],
  "whether a session still has work": [
    "SELECT FROM worker_queue WHERE session_id = 's77'",
    ["worker_queue_session_id_idx"],
    20
  ],
  "the instances with a text": [
    "SELECT * FROM dx_instances_of_attribute('customer', 'text', 'c7', NULL, NULL, NULL, NULL, NULL, NULL, true, 100, 5)",
    ["attributes_name_text_value_created_at_instance_id_idx"],
    20
  ],
  "the instances in a range of times": [
    `SELECT * FROM dx_instances_of_attribute('due', 'time', NULL, '5000', '20000', NULL, NULL, to_timestamp(10), 'i10',
       false, 100, 5)`,
    ["attributes_name_time_value_created_at_instance_id_idx"],
    60
  ],
  "the instances in a wide range of numbers": [
    "SELECT * FROM dx_instances_of_attribute('amount', 'number', NULL, '5', NULL, NULL, NULL, NULL, NULL, true, 50, 5)",
    ["attributes_name_number_value_created_at_instance_id_idx", "attributes_name_created_at_instance_id_idx"],
    150
  ],
  "the names and statuses of instances": [
    "SELECT * FROM dx_groups_of_instances('{Running,Completed,Failed,Cancelled}', NULL)",
    ["instances_status_orchestration_name_created_at_idx"],
    20
  ],
  "claimSchedules": [
    `SELECT dx_claim_schedules('{}', 10, 5000, ${now})`,
    ["schedules_look_at_idx", "schedules_name_idx", "schedules_pkey", "instances_pkey"],
    100
  ],
  "fireSchedules": [
    `SELECT dx_fire_schedules(
       '[{"name": "schedule9", "revision": 1, "fired_until_ms": ${now}, "requests": [], "run_count": 5, "last": 5}]',
       '[{"fire": 1, "number": 5, "kind": "Scheduled", "occurrence_ms": ${now}, "outcome": "Skipped"}]',
       '[]', '[]', '[]', '[]', NULL, ${now})`,
    ["schedules_pkey", "schedule_runs_pkey"],
    30
  ],
  "readSchedules": [`SELECT dx_read_schedules(NULL, NULL, 20, ${now})`, ["schedules_pkey", "schedule_runs_pkey"], 150],
  "readScheduleRuns": ["SELECT dx_read_schedule_runs('schedule5', 10)", ["schedule_runs_pkey"], 20],
  "the children of an instance": [
    "SELECT instance_id FROM instances WHERE parent_instance_id = 'parent7'",
    ["instances_parent_instance_id_created_at_idx"],
    30
  ]
}
