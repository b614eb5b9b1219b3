/**
 * What `status`, `queues` and `top` say of work that waits: whose it is, and why no process takes it.
 */
import { assert, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Event from "../../src/model/Event.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"

/** Messages of three definitions, of one without an instance, activities with a tag; a process that lives. */
const contents = `
  INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at)
  SELECT name || n, name, version, now(), now()
  FROM (VALUES ('Order', '1.0.0'), ('Booking', '2.0.0'), ('Trip', '1.0.0')) AS one (name, version)
  CROSS JOIN generate_series(1, 2) AS n;
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
  SELECT id, '{}', now() - ago::interval, now() - interval '1 day', route
  FROM (VALUES
    ('Order1', '6 minutes', '1000.1.0 =1.0.0 Order'),
    ('Order2', '1 second', '1000.1.0 =1.0.0 Order'),
    ('Booking1', '12 minutes', '1000.1.0 =2.0.0 Booking'),
    ('Trip1', '8 minutes', '1000.1.0 =1.0.0 Trip')
  ) AS one (id, ago, route);
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
  VALUES ('early', '{"QueueMessage":{}}', now() - interval '1 hour', now() - interval '1 hour');
  INSERT INTO worker_queue (work_item, visible_at, created_at, instance_id, execution_id, activity_id, tag)
  VALUES
    ('{"ActivityExecute":{"name":"Render"}}', now() - interval '5 minutes', now(), 'Trip1', 1, 1, 'gpu'),
    ('{"ActivityExecute":{"name":"Charge"}}', now() - interval '5 minutes', now(), 'Trip1', 1, 2, NULL);
  UPDATE worker_queue SET created_at = visible_at, attempt_count = 2;
  INSERT INTO processes (
    id, build, host, pid, orchestrations, activities, untagged, tags, orchestration_slots, activity_slots, since,
    seen_at, listens
  )
  VALUES
    ('a0000000-0000-4000-8000-000000000000', 'new', 'h', 1, '{Order@1.0.0,Trip@1.0.0}', '{Charge,Render}', true,
      '{gpu}', 16, 8, now(), now(), true);
  SELECT pg_advisory_lock_shared(dx_process_key('a0000000-0000-4000-8000-000000000000'))`

class Store extends Context.Service<Store, PgServer.TestDatabase>()("test/Waiting") {}

const make = Effect.tap(PgServer.database, ({ sql }) => sql(contents))

const run = (args: string) => Effect.flatMap(Store, ({ url }) => Cli.run(args, { env: { DATABASE_URL: url } }))

it.layer(Layer.effect(Store, make), { excludeTestServices: true })("work that waits", (it) => {
  it.effect("status: an unhealthy store names whose work is late and why, and what to do about it", () =>
    Effect.gen(function*() {
      yield* run("pause --name Trip")
      yield* run("pause --tag gpu")
      const { exitCode, stderr, stdout } = yield* run("status")
      assert.strictEqual(exitCode, 1)
      assert.strictEqual(
        stderr,
        "error: the oldest message has waited for 12 min, more than 7 s: Booking 2.0.0 (no living process serves it: " +
          "see processes), Trip 1.0.0 (paused: resume --name Trip), Order 1.0.0 (1 process serves it: see " +
          "queues); the oldest activity with the tag gpu has waited for 5 min, more than 32 s: activity Render with " +
          "tag gpu (paused: resume --tag gpu); the oldest activity has waited for 5 min, more than 32 s: activity " +
          "Charge (1 process serves it: see queues)\n"
      )
      assert.match(stdout, /^retrying +1 instance; see list --retrying$/m)
      assert.match(stdout, /^unserved +Booking 2\.0\.0: 1 waits, the oldest for 12 min$/m)
      const json = yield* run("status --json")
      assert.strictEqual(JSON.parse(json.stdout).health.problems.join("; "), JSON.parse(json.stderr).error.message)
      yield* run("resume --name Trip")
      yield* run("resume --tag gpu")
    }))

  it.effect("status: what is paused and not served needs both", () =>
    Effect.gen(function*() {
      yield* run("pause --all")
      const { stderr } = yield* run("status")
      assert.include(
        stderr,
        "Booking 2.0.0 (paused: resume --all; no living process serves it: see processes), Trip 1.0.0 (paused: resume --all)"
      )
      yield* run("resume --all")
    }))

  it.effect("queues and top: work that is paused is marked, although processes serve it", () =>
    Effect.gen(function*() {
      yield* run("pause --name Trip")
      yield* run("pause --tag gpu")
      const { stdout } = yield* run("queues")
      assert.match(stdout, /^Trip +1\.0\.0 +1 .* 1, paused$/m)
      assert.match(stdout, /^Render +gpu +1 .* 1, paused$/m)
      assert.match(stdout, /^Order +1\.0\.0 +2 .* 1$/m)
      assert.match(stdout, /^\(no instance yet\) +- +1 .* -$/m)
      const loads = JSON.parse((yield* run("queues --json")).stdout)
      assert.deepStrictEqual(loads.orchestrations.map(({ paused }: { paused: boolean }) => paused), [
        false,
        false,
        true,
        false
      ])
      const top = yield* run("top --once")
      assert.match(top.stdout, /^Trip 1\.0\.0 +1 .* 1, paused$/m)
      assert.match(top.stdout, /^activity Render with tag gpu +1 .* 1, paused$/m)
      assert.match(top.stdout, /^Order 1\.0\.0 +2 .* 1$/m)
      yield* run("resume --name Trip")
      yield* run("resume --tag gpu")
    }))

  it.effect("list --retrying: which delivery of an activity waits or runs", () =>
    Effect.gen(function*() {
      const { sql } = yield* Store
      const at = { instanceId: "again", executionId: 1, timestampMs: 0, duroxideVersion: "1000.1.0" }
      const details = { _tag: "Application", kind: "ActivityFailed", message: "\"declined\"", retryable: true } as const
      const events: ReadonlyArray<Event.Event> = [
        { ...at, _tag: "ActivityScheduled", eventId: 2, sourceEventId: null, name: "Charge", input: "1" },
        { ...at, _tag: "ActivityFailed", eventId: 3, sourceEventId: 2, details },
        { ...at, _tag: "ActivityScheduled", eventId: 4, sourceEventId: null, name: "Charge", input: "1" }
      ]
      yield* sql(
        "INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at) VALUES ('again', 'Trip', now(), now())"
      )
      for (const event of events) {
        yield* sql(
          `INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
           VALUES ('again', 1, $1, $2, $3, now())`,
          [event.eventId, event._tag, Event.encode(event)]
        )
      }
      yield* sql(
        `INSERT INTO worker_queue
           (work_item, visible_at, created_at, instance_id, execution_id, activity_id, attempt_count, locked_until)
         VALUES ('{"ActivityExecute":{"name":"Charge","try_number":2}}', now(), now(), 'again', 1, 4, 1,
           extract(epoch FROM now() + interval '1 hour') * 1000)`
      )
      const { stdout } = yield* run("list --retrying --order oldest")
      assert.match(stdout, /^INSTANCE .* DETAIL\nTrip1 .*  an activity, try 1, delivery 2, due for 5 min\nagain .*  /)
      assert.match(stdout, /  Charge, try 2, runs: "declined"\n$/)
      const { instances: [found, again] } = JSON.parse((yield* run("list --retrying --order oldest --json")).stdout)
      assert.deepInclude(found.retrying, { activity: null, tryNumber: 1, deliveries: 2, error: null })
      assert.deepInclude(again.retrying, { activity: "Charge", tryNumber: 2, deliveries: 1, error: "\"declined\"" })
    }))

  it.effect("interrupt, terminate: they say that no living process could end the instance", () =>
    Effect.gen(function*() {
      const interrupted = yield* run("interrupt Booking2 --deadline 5s")
      assert.strictEqual(
        interrupted.stdout,
        "interrupted Booking2: it cleans up, and then it is Cancelled; it is terminated after 5s. No living " +
          "process serves Booking 2.0.0: this waits for one; if the deadline has passed then, it is Cancelled without " +
          "clean-up\n"
      )
      const terminated = yield* run("terminate Booking2")
      assert.strictEqual(
        terminated.stdout,
        "terminated Booking2: it is Cancelled at its next turn, without clean-up. No living process serves Booking " +
          "2.0.0: that waits for one; \"delete --force\" removes it now\n"
      )
      assert.notInclude((yield* run("terminate Order2")).stdout, "serves")
      yield* run("start Booking@2.0.0 --id new")
      assert.strictEqual(
        (yield* run("interrupt new --deadline 5s")).stdout,
        "interrupted new: it has not begun, so it is Cancelled without clean-up. No living process serves Booking 2.0.0: " +
          "this waits for one\n"
      )
    }))
})
