/**
 * What the lists of the command line show in their last columns, and on which width.
 */
import { assert, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Event from "../../src/model/Event.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"

const error = "the bank is down: it answered 503 to the third of three calls"

/** An instance whose detail is long, a task, and processes that have died: one was found, one not yet. */
const contents = `
  INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at, custom_status)
  VALUES ('trip', 'Trip', '1.0.0', now(), now(), '${error}');
  INSERT INTO queue_tasks (id, name, key, payload, status, max_attempts, run_at, queue, created_at, updated_at, ended_at)
  VALUES (
    'e0000000-0000-4000-8000-000000000000', 'mail', 'order-17', '{"to":"Ada"}', 'Completed', 20, now(), 'tasks', now(),
    now(), now()
  );
  INSERT INTO processes (
    id, build, host, pid, orchestrations, activities, untagged, tags, orchestration_slots, activity_slots, since,
    seen_at, listens, found_dead_at
  )
  VALUES
    ('a0000000-0000-4000-8000-000000000000', 'old', 'h', 1, '{}', '{}', true, '{}', 1, 1, now() - interval '5 hours',
      now() - interval '5 hours', true, now() - interval '3 hours'),
    ('b0000000-0000-4000-8000-000000000000', 'old', 'h', 2, '{}', '{}', true, '{}', 1, 1, now() - interval '4 hours',
      now() - interval '4 hours', true, NULL)`

class Store extends Context.Service<Store, PgServer.TestDatabase>()("test/Lists") {}

const make = Effect.tap(PgServer.database, ({ sql }) => sql(contents))

const run = (args: string, options: Cli.Options = {}) =>
  Effect.flatMap(Store, ({ url }) => Cli.run(args, { ...options, env: { DATABASE_URL: url, NO_COLOR: "1" } }))

it.layer(Layer.effect(Store, make), { excludeTestServices: true })("lists", (it) => {
  it.effect("list cuts its details at the width of the terminal, and nowhere else", () =>
    Effect.gen(function*() {
      assert.include((yield* run("list")).stdout, `  ${error}\n`)
      assert.include((yield* run("list", { terminal: 160 })).stdout, `  ${error}\n`)
      const lines = (yield* run("list", { terminal: 100 })).stdout.trimEnd().split("\n")
      assert.lengthOf(lines, 2)
      assert.match(lines[1]!, / the bank is down: .*…$/)
      assert.lengthOf(lines[1]!, 100)
    }))

  it.effect("tasks says which ones it lists, and shows keys, and payloads if it is asked to", () =>
    Effect.gen(function*() {
      assert.strictEqual(
        (yield* run("tasks")).stdout,
        "no open or dead tasks; --status completed or --status cancelled lists those that have ended\n"
      )
      assert.strictEqual((yield* run("tasks --status dead")).stdout, "no tasks\n")
      const plain = (yield* run("tasks --status completed")).stdout
      assert.match(plain, /^TASK +NAME +KEY +STATUS .*\ne0000000\S+ +mail +order-17 +Completed /)
      assert.notInclude(plain, "Ada")
      assert.notInclude((yield* run("tasks --status completed --json")).stdout, "payload")
      assert.match((yield* run("tasks --status completed --payloads")).stdout, / PAYLOAD\n.* \{"to": ?"Ada"\}\n$/)
      const { tasks } = JSON.parse((yield* run("tasks --status completed --payloads --json")).stdout)
      assert.deepStrictEqual(JSON.parse(tasks[0].payload), { to: "Ada" })
    }))

  it.effect("processes: when one started, and when it was found dead", () =>
    Effect.gen(function*() {
      const { stdout } = yield* run("processes")
      assert.match(stdout, /^BUILD +HOST +STATE +STARTED +FOUND DEAD +TURNS/)
      assert.match(stdout, /^old +h\/1 +dead +5 h ago +3 h ago /m)
      assert.match(stdout, /^old +h\/2 +dead +4 h ago +0 s ago /m)
      const [first, second] = JSON.parse((yield* run("processes --json")).stdout)
      assert.isBelow(Date.parse(first.since), Date.parse(first.foundDeadAt))
      assert.isNull(second.foundDeadAt)
    }))

  it.effect("list, show and explain distinguish a typed error from what a program died of, and name a cure", () =>
    Effect.gen(function*() {
      const { sql } = yield* Store
      const failed = (kind: string, message: string) =>
        Event.encode({
          _tag: "OrchestrationFailed",
          eventId: 2,
          sourceEventId: null,
          instanceId: "i",
          executionId: 1,
          timestampMs: 0,
          duroxideVersion: "1000.1.0",
          details: { _tag: "Application", kind: kind as "Panicked", message, retryable: false }
        })
      for (
        const [id, kind, message, output] of [
          ["bug", "Panicked", "no such card", "orchestration panicked: no such card"],
          ["declined", "OrchestrationFailed", "{\"_tag\":\"Declined\"}", "{\"_tag\":\"Declined\"}"]
        ] as const
      ) {
        yield* sql(
          `INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at, status)
           VALUES ($1, 'Trip', '1.0.0', now(), now(), 'Failed')`,
          [id]
        )
        yield* sql(
          `INSERT INTO executions (instance_id, execution_id, status, output, started_at, completed_at)
           VALUES ($1, 1, 'Failed', $2, now(), now())`,
          [id, output]
        )
        yield* sql(
          `INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
           VALUES ($1, 1, 2, 'OrchestrationFailed', $2, now())`,
          [id, failed(kind, message)]
        )
      }
      const { stdout } = yield* run("list --status failed")
      assert.match(stdout, /^bug .* died: no such card$/m)
      assert.match(stdout, /^declined .* \{"_tag":"Declined"\}$/m)
      const bugs = yield* run("list --error panicked")
      assert.match(bugs.stdout, /^bug /m)
      assert.notInclude(bugs.stdout, "declined")
      assert.match((yield* run("list --help")).stdout, /died: …/)
      const shown = (yield* run("show bug")).stdout
      assert.match(shown, /^error +died: no such card$/m)
      assert.match(shown, /^cure +deploy code that does not die there, then: retry bug \(first with --dry-run\)$/m)
      const explained = (yield* run("explain bug")).stdout
      assert.match(explained, /^bug failed .*: died: no such card\. .*: duroxide-prisma retry --dry-run bug$/m)
      const declined = (yield* run("show declined")).stdout
      assert.match(declined, /^error +\{"_tag":"Declined"\}$/m)
      assert.match(declined, /^cure +once its cause is gone: retry declined \(first with --dry-run\)$/m)
      assert.notInclude((yield* run("explain declined")).stdout, "died")
      yield* sql("UPDATE instances SET parent_instance_id = 'declined' WHERE instance_id = 'bug'")
      assert.match((yield* run("show bug")).stdout, /^cure .* then: retry its parent declined, if that waits for it$/m)
    }))
})
