/**
 * `tasks`, and the dead letters of `queues`.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"

/** Five of each status and name; their ids end with the number of minutes that they are old. */
const contents = `
  INSERT INTO queue_tasks (
    id, name, payload, status, attempt, uncounted, max_attempts, run_at, queue, created_at, updated_at, look_at,
    ended_at, dead_at, error, started_at, worker_id, lease_until, heartbeat_at
  )
  SELECT
    (letter || '0000000-0000-4000-8000-00000000000' || n)::uuid, name, '{"secret":1}', status, 3, 1, 20,
    now() - n * interval '1 minute', 'tasks', now() - interval '1 hour', now(),
    CASE WHEN status IN ('Pending', 'Running') THEN now() - n * interval '1 minute' END,
    CASE WHEN status IN ('Completed', 'Cancelled') THEN now() - n * interval '1 minute' END,
    CASE WHEN status = 'Dead' THEN now() - n * interval '1 minute' END,
    error,
    CASE WHEN status = 'Running' THEN now() - n * interval '1 minute' END,
    CASE WHEN status = 'Running' THEN 'w1' END,
    CASE WHEN status = 'Running' THEN extract(epoch FROM now() + interval '1 hour') * 1000 END,
    CASE WHEN status = 'Running' THEN now() END
  FROM (VALUES
    ('a', 'Dead', 'resize', '{"_tag":"Failed","error":"\\"no pixels\\""}'),
    ('b', 'Dead', 'mail', '{"_tag":"TimedOut","timeoutMs":5000}'),
    ('c', 'Pending', 'resize', '{"_tag":"Lost"}'),
    ('d', 'Running', 'mail', NULL),
    ('e', 'Completed', 'resize', NULL),
    ('f', 'Cancelled', 'mail', '{"_tag":"Cancelled","reason":"rain"}')
  ) AS one (letter, status, name, error)
  CROSS JOIN generate_series(1, 5) AS n;
  INSERT INTO queue_dead (id, queue, payload, created_at, died_at, attempts, max_attempts, last_error)
  SELECT
    n, 'mails', '{"kind":"mail","secret":1}', now(), now() - (1001 - n) * interval '1 minute', 20, 20,
    CASE WHEN n = 2 THEN 'no handler' END
  FROM generate_series(1, 1000) AS n`

const id = (letter: string, n: number) => `${letter}0000000-0000-4000-8000-00000000000${n}`

const opened = Effect.gen(function*() {
  const test = yield* PgServer.database
  yield* test.sql(contents)
  const run = (args: string, options: Cli.Options = {}) =>
    Cli.run(args, { ...options, env: { DATABASE_URL: test.url, NO_COLOR: "1" } })
  const json = (args: string) =>
    Effect.map(run(`${args} --json`.replaceAll("  ", " ")), ({ exitCode, stderr, stdout }) => {
      assert.deepStrictEqual([exitCode, stderr], [0, ""], args)
      return JSON.parse(stdout)
    })
  const statuses = (letter: string) =>
    Effect.map(
      test.sql<{ status: string }>("SELECT status FROM queue_tasks WHERE id::text LIKE $1 ORDER BY id", [`${letter}%`]),
      (rows) => rows.map(({ status }) => status)
    )
  return { ...test, run, json, statuses }
})

const repeated = (status: string, times: number) => Array.from({ length: times }, () => status)

const yes: Cli.Options = { terminal: 200, typed: () => Promise.resolve("y") }
const no: Cli.Options = { terminal: 200, typed: () => Promise.resolve("n") }

it.live("tasks: pages by status and name, dead ones first, each task once", () =>
  Effect.gen(function*() {
    const { json, run, sql } = yield* opened
    const idsOf = Effect.fnUntraced(function*(args: string) {
      const found: Array<string> = []
      let cursor: string | null = null
      do {
        const page: { tasks: ReadonlyArray<{ taskId: string }>; next: string | null } = yield* json(
          `tasks ${args} --limit 3${cursor === null ? "" : ` --cursor ${cursor}`}`
        )
        found.push(...page.tasks.map(({ taskId }) => `${taskId[0]}${taskId.at(-1)}`))
        cursor = page.next
      } while (cursor !== null)
      return found.join(" ")
    })
    assert.strictEqual(
      yield* idsOf(""),
      "b1 a1 b2 a2 b3 a3 b4 a4 b5 a5 c5 d5 c4 d4 c3 d3 c2 d2 c1 d1"
    )
    assert.strictEqual(yield* idsOf("--name resize"), "a1 a2 a3 a4 a5 c5 c4 c3 c2 c1")
    assert.strictEqual(yield* idsOf("--status dead --name mail"), "b1 b2 b3 b4 b5")
    assert.strictEqual(yield* idsOf("--status pending"), "c5 c4 c3 c2 c1")
    assert.strictEqual(yield* idsOf("--status running"), "d5 d4 d3 d2 d1")
    assert.strictEqual(yield* idsOf("--status completed"), "e1 e2 e3 e4 e5")
    assert.strictEqual(yield* idsOf("--status cancelled"), "f1 f2 f3 f4 f5")
    assert.strictEqual(yield* idsOf("--name none"), "")
    const { tasks: [dead] } = yield* json("tasks --name resize --limit 1")
    assert.deepInclude(dead, {
      taskId: id("a", 1),
      name: "resize",
      key: null,
      status: "Dead",
      attempts: 3,
      counted: 2,
      maxAttempts: 20,
      error: "\"no pixels\"",
      startedAt: null
    })
    const { stdout } = yield* run("tasks --limit 20")
    assert.match(stdout, /^a0000000-0000-4000-8000-000000000002 +resize +Dead +2\/20 +died 2 min ago +"no pixels"$/m)
    assert.match(stdout, /^b\S+2 +mail +Dead +2\/20 +died 2 min ago +timed out after 5 s$/m)
    assert.match(stdout, /^c\S+2 +resize +Pending +2\/20 +due for 2 min +its worker was lost$/m)
    assert.match(stdout, /^d\S+2 +mail +Running +2\/20 +runs for 2 min$/m)
    assert.match(
      (yield* run("tasks --status cancelled")).stdout,
      /^f\S+2 +mail +Cancelled +2\/20 +ended 2 min ago +rain$/m
    )
    assert.notInclude(stdout, "secret")
    yield* sql("UPDATE queue_tasks SET has_slot = false, limit_key = 'tenant-7' WHERE id = $1", [id("c", 2)])
    assert.match(
      (yield* run("tasks --status pending")).stdout,
      /^c\S+2 +resize +Pending +2\/20 +waits for a slot for 2 min +its worker was lost$/m
    )
    const { tasks: pending } = yield* json("tasks --status pending --name resize")
    assert.deepStrictEqual(
      pending.map(({ waitsForLimit }: { waitsForLimit: string | null }) => waitsForLimit),
      [null, null, null, "resize/tenant-7", null]
    )
    assert.strictEqual((yield* run("tasks --name none --status dead")).stdout, "no tasks\n")
    for (const cursor of ["x", (yield* json("tasks --status completed --limit 1")).next]) {
      const { exitCode, stderr } = yield* run(`tasks --cursor ${cursor}`)
      assert.deepStrictEqual([exitCode, stderr.includes("invalid cursor")], [2, true])
    }
  }))

it.live("tasks redrive: by id without a question, by name with one", () =>
  Effect.gen(function*() {
    const { json, run, sql, statuses } = yield* opened
    const named = yield* run(`tasks redrive ${id("a", 1)} ${id("c", 1)} nope`)
    assert.deepStrictEqual([named.exitCode, named.stdout], [
      1,
      `redriven 1 task\n2 refused:\n  task ${
        id("c", 1)
      } is Pending, not Dead\n  task nope not found: ids are UUIDs; to select tasks by name, give --name nope\n`
    ])
    assert.deepStrictEqual(yield* statuses("a"), ["Pending", ...repeated("Dead", 4)])
    assert.lengthOf(yield* sql("SELECT FROM queue_outbox"), 1)
    assert.strictEqual((yield* run("tasks redrive --name resize", no)).exitCode, 1)
    assert.strictEqual((yield* run("tasks redrive --name resize")).exitCode, 2)
    const { first, ...counted } = yield* json("tasks redrive --all --dry-run")
    assert.lengthOf(first, 5)
    assert.deepStrictEqual(counted, {
      action: "redriven",
      matched: 9,
      done: 0,
      refused: [],
      dryRun: true
    })
    assert.deepStrictEqual(yield* statuses("a"), ["Pending", ...repeated("Dead", 4)])
    const asked = yield* run("tasks redrive --name resize", yes)
    assert.strictEqual(asked.stdout, "redriven 4 tasks\n")
    assert.include(asked.stderr, `redrive 4 tasks: ${id("a", 2)}, ${id("a", 3)}`)
    assert.deepStrictEqual(yield* statuses("a"), repeated("Pending", 5))
    assert.deepStrictEqual(yield* statuses("b"), repeated("Dead", 5))
    assert.deepInclude(yield* json("tasks redrive --all --limit 2 --yes"), { matched: 2, done: 2 })
    assert.deepStrictEqual(yield* statuses("b"), [...repeated("Pending", 2), ...repeated("Dead", 3)])
  }))

it.live("tasks cancel: what has not ended, by id, name or status", () =>
  Effect.gen(function*() {
    const { json, run, sql, statuses } = yield* opened
    const named = yield* run(`tasks cancel ${id("c", 1)} ${id("e", 1)} --reason rain`)
    assert.deepStrictEqual([named.exitCode, named.stdout], [
      1,
      `cancelled 1 task\n1 refused:\n  task ${id("e", 1)} has ended: Completed\n`
    ])
    const [row] = yield* sql<{ error: string }>("SELECT error FROM queue_tasks WHERE id = $1", [id("c", 1)])
    assert.include(row!.error, "rain")
    assert.deepInclude(yield* json("tasks cancel --status running --limit 2 --yes"), { action: "cancelled", done: 2 })
    assert.deepStrictEqual((yield* statuses("d")).sort(), [...repeated("Cancelled", 2), ...repeated("Running", 3)])
    assert.strictEqual((yield* run("tasks cancel --name resize", yes)).stdout, "cancelled 4 tasks\n")
    assert.strictEqual((yield* run("tasks cancel --all --yes")).stdout, "cancelled 3 tasks\n")
    assert.strictEqual((yield* run("tasks cancel --all --yes")).stdout, "no tasks match\n")
    assert.deepStrictEqual(yield* statuses("a"), repeated("Dead", 5))
  }))

it.live("what cannot be combined is one line, exit code 2", () =>
  Effect.gen(function*() {
    const { run } = yield* opened
    for (
      const [args, text] of [
        ["tasks redrive", "name tasks by their ids, or select them with --name or --all"],
        ["tasks cancel --limit 3", "name tasks by their ids, or select them with --name or --all"],
        ["tasks redrive a --all", "name tasks by their ids, or select them with flags such as --name, not both"],
        [
          "tasks cancel a --status running",
          "name tasks by their ids, or select them with flags such as --name, not both"
        ]
      ]
    ) {
      const { exitCode, stderr, stdout } = yield* run(args!)
      assert.deepStrictEqual([exitCode, stdout, stderr], [2, "", `error: ${text}\n`], args)
    }
  }))

it.live("queues dead lists dead letters without payloads, queues redrive puts them back", () =>
  Effect.gen(function*() {
    const { json, run, sql } = yield* opened
    const left = Effect.map(sql("SELECT FROM queue_dead"), ({ length }) => length)
    const { dead, messages, queue } = yield* json("queues dead mails --limit 2")
    assert.deepStrictEqual([queue, dead], ["mails", 1000])
    assert.deepStrictEqual(messages.map(({ diedAt: _at, ...message }: { diedAt: string }) => message), [
      { id: "1", kind: "mail", attempts: 20, reason: null },
      { id: "2", kind: "mail", attempts: 20, reason: "no handler" }
    ])
    const listed = yield* run("queues dead mails --limit 2")
    assert.match(listed.stdout, /^ 1 +mail +20 +\d+ h ago +delivered too often$/m)
    assert.match(listed.stdout, /^ 2 +mail +20 +\d+ h ago +no handler\n\nand 998 others\n$/m)
    assert.strictEqual((yield* run("queues dead other")).stdout, "no dead letters in other\n")

    assert.strictEqual((yield* run("queues redrive mails")).exitCode, 2)
    const refused = yield* run("queues redrive mails", no)
    assert.strictEqual(refused.exitCode, 1)
    assert.include(refused.stderr, "redrive 1,000 messages of mails? [y/N] ")
    assert.deepStrictEqual(yield* json("queues redrive mails --dry-run"), {
      action: "redriven",
      queue: "mails",
      matched: 1000,
      done: 0,
      dryRun: true
    })
    assert.strictEqual(yield* left, 1000)
    assert.strictEqual((yield* run("queues redrive mails --limit 1", yes)).stdout, "redriven 1 message of mails\n")
    assert.lengthOf(yield* sql("SELECT FROM queue_messages WHERE id = 1 AND attempts = 0"), 1)
    assert.deepInclude(yield* json("queues redrive mails --yes"), { matched: 999, done: 999 })
    assert.strictEqual(yield* left, 0)
    assert.strictEqual((yield* run("queues redrive mails --yes")).stdout, "no dead letters in mails\n")
    const unknown = yield* run("queues dead mials")
    assert.deepStrictEqual([unknown.exitCode, unknown.stdout], [0, "no dead letters in mials\n"])
    assert.strictEqual(unknown.stderr, "warning: no queue mials has messages; these have some: mails\n")
    assert.strictEqual((yield* run("queues dead mails")).stderr, "")
    const one = yield* run("tasks redrive SendMail")
    assert.strictEqual(one.stderr, "error: 1 of 1 task was refused\n")
    assert.include(
      one.stdout,
      "task SendMail not found: ids are UUIDs; to select tasks by name, give --name SendMail\n"
    )
  }))
