/**
 * Commands that change many instances: `retry`, `interrupt`, `terminate` and `delete`, by ids and by filters.
 */
import { assert, it } from "@effect/vitest"
import { Client, Orchestration, Runtime } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as LatencyProxy from "../programs/latencyProxy.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Cli from "./cli.ts"

const Charge = Orchestration.make("Charge", { error: Schema.String })
const Order = Orchestration.make("Order")
const Trip = Orchestration.make("Trip", { payload: Schema.Struct({ child: Schema.String }) })
const Sleep = Orchestration.make("Sleep")

const client = (url: string) => Client.layer.pipe(Layer.provideMerge(PrismaProvider.layer({ url })))

/** A process whose orders fail, with their children. */
const process = (url: string) =>
  Runtime.layer({ orchestrations: [Charge, Order, Trip, Sleep] }).pipe(
    Layer.provide([
      Charge.toLayer(() => Effect.fail("declined")),
      Order.toLayer(() => Effect.orDie(Charge.execute())),
      Trip.toLayer(({ child }) => Effect.orDie(Sleep.executeWithId({ instanceId: child }))),
      Sleep.toLayer(() => Effect.asVoid(Effect.sleep("1 day")))
    ]),
    Layer.provideMerge(client(url)),
    Layer.provide(Logger.layer([]))
  )

const start = (url: string, ids: ReadonlyArray<string>) =>
  Effect.flatMap(Client.Client, (client) => Effect.forEach(ids, (instanceId) => client.start(Order, { instanceId })))
    .pipe(Effect.provide(Layer.provide(client(url), Logger.layer([]))))

/** Ids with numbers of two digits. */
const numbered = (count: number, prefix = "order-") => Array.from({ length: count }, (_, n) => `${prefix}${n + 10}`)

/** A store with orders, and their children, that have failed; their process has ended. */
const failed = Effect.fnUntraced(function*(count: number) {
  const test = yield* PgServer.database
  yield* Effect.gen(function*() {
    const client = yield* Client.Client
    yield* Effect.forEach(numbered(count), (instanceId) => Effect.exit(client.execute(Order, { instanceId })), {
      concurrency: "unbounded"
    })
  }).pipe(Effect.provide(process(test.url)))
  return test
})

const running = ({ sql }: PgServer.TestDatabase) =>
  Effect.map(
    sql<{ id: string }>(
      "SELECT instance_id AS id FROM instances WHERE orchestration_name = 'Order' AND status = 'Running' ORDER BY 1"
    ),
    (rows) => rows.map(({ id }) => id)
  )

const on = ({ url }: { readonly url: string }) => (args: string | ReadonlyArray<string>, options: Cli.Options = {}) =>
  Cli.run(args, { ...options, env: { DATABASE_URL: url, NO_COLOR: "1" } })

const answering = (...lines: ReadonlyArray<string>): Cli.Options => {
  const left = [...lines]
  return { terminal: 120, typed: () => Promise.resolve(left.shift()!) }
}

it.live("retry: a dry run says how many there are and changes nothing; children are left to their parents", () =>
  Effect.gen(function*() {
    const test = yield* failed(7)
    const run = on(test)
    assert.strictEqual(
      (yield* run("retry --status failed --dry-run")).stdout,
      "would retry 7 instances: order-10, order-11, order-12, order-13, order-14 and 2 others\n"
    )
    const { exitCode, stdout } = yield* run("retry --name Order --limit 3 --dry-run --json")
    assert.strictEqual(exitCode, 0)
    assert.deepStrictEqual(JSON.parse(stdout), {
      action: "retried",
      matched: 3,
      done: 0,
      refused: [],
      dryRun: true,
      first: ["order-10", "order-11", "order-12"],
      plan: { looked: 3, refused: 0, again: [], forgotten: [], warnings: [] }
    })
    assert.strictEqual((yield* run("retry --name Charge --dry-run")).stdout, "no instances match\n")
    const named = yield* run("retry order-11 order-10 order-11 nope --dry-run")
    assert.deepStrictEqual([named.exitCode, named.stdout], [
      0,
      "would retry 2 instances: order-11, order-10\n1 refused:\n  instance nope not found\n"
    ])
    assert.deepStrictEqual(yield* running(test), [])
  }))

it.live("a filter asks on a terminal, and does nothing unless the answer is yes", () =>
  Effect.gen(function*() {
    const test = yield* failed(3)
    const run = on(test)
    for (const answer of ["n", "", "yesterday"]) {
      const { exitCode, stderr, stdout } = yield* run("retry --status failed", answering(answer))
      assert.deepStrictEqual([exitCode, stdout], [1, ""])
      assert.include(stderr, "retry 3 instances: order-10, order-11, order-12? [y/N] ")
      assert.include(stderr, "error: not confirmed: nothing was changed\n")
    }
    const ended = yield* run("retry --status failed", { terminal: 120 })
    assert.strictEqual(ended.exitCode, 1)
    // Without someone to answer.
    for (const [args, options] of [["", {}], ["--json", answering("y")]] as const) {
      const { exitCode, stderr, stdout } = yield* run(`retry --status failed ${args}`.trim(), options)
      assert.deepStrictEqual([exitCode, stdout], [2, ""])
      assert.include(stderr, "give --yes, or --dry-run")
    }
    assert.deepStrictEqual(yield* running(test), [])
    const { exitCode, stdout } = yield* run("retry --status failed", answering("y"))
    assert.deepStrictEqual([exitCode, stdout], [0, "retried 3 instances\n"])
    assert.deepStrictEqual(yield* running(test), numbered(3))
    const again = yield* run("retry --status failed --yes")
    assert.deepStrictEqual([again.exitCode, again.stdout], [0, "no instances match\n"])
  }))

it.live("an instance that is created while it asks is not taken", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    yield* start(test.url, ["a", "b"])
    const { stdout } = yield* on(test)("terminate --name Order", {
      terminal: 120,
      typed: () => Effect.runPromise(Effect.as(start(test.url, ["c"]), "y"))
    })
    assert.match(stdout, /^terminated 2 instances: they are Cancelled at their next turn, without clean-up\n$/)
    const rows = yield* test.sql<{ id: string }>(
      "SELECT instance_id AS id FROM orchestrator_queue WHERE work_item LIKE '{\"CancelInstance%' ORDER BY 1"
    )
    assert.deepStrictEqual(rows.map(({ id }) => id), ["a", "b"])
  }))

it.live("a refusal does not stop the others: it is counted and named, exit code 1", () =>
  Effect.gen(function*() {
    const test = yield* failed(2)
    yield* start(test.url, ["order-99"])
    const run = on(test)
    const { exitCode, stderr, stdout } = yield* run("retry order-99 order-10 nope order-11")
    assert.deepStrictEqual([exitCode, stderr], [1, "error: 2 of 4 instances were refused\n"])
    assert.strictEqual(
      stdout,
      "retried 2 instances\n2 refused:\n  instance order-99 cannot be retried: it runs\n  instance nope not found\n"
    )
    assert.deepStrictEqual(yield* running(test), ["order-10", "order-11", "order-99"])
    const json = yield* run("retry nope order-10 --json")
    assert.deepStrictEqual([json.exitCode, JSON.parse(json.stderr).error.code], [1, "Refused"])
    assert.deepStrictEqual(JSON.parse(json.stdout), {
      action: "retried",
      matched: 2,
      done: 0,
      refused: [
        { instanceId: "nope", code: "InstanceNotFound", message: "instance nope not found" },
        { instanceId: "order-10", code: "RetryRefused", message: "instance order-10 cannot be retried: it runs" }
      ],
      dryRun: false
    })
  }))

it.live("a lost connection stops it with how far it came, exit code 4; the same command does the rest", () =>
  Effect.gen(function*() {
    const test = yield* failed(60)
    const proxy = yield* LatencyProxy.proxyFor(test.url, { oneWayMs: 10 })
    const lost = yield* Effect.forkChild(on({ url: proxy.through(test.url) })("retry --status failed --yes --json"))
    yield* waitUntil(Effect.map(running(test), ({ length }) => length >= 30))
    proxy.state.isDown = true
    proxy.reset()
    const { exitCode, stderr, stdout } = yield* Fiber.join(lost)
    assert.deepStrictEqual([exitCode, stdout], [4, ""])
    const { code, message } = JSON.parse(stderr).error
    assert.strictEqual(code, "ConnectionLost")
    // A statement that has reached the server is not ended by the loss of its connection.
    yield* waitUntil(Effect.map(
      test.sql("SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '% cli'"),
      ({ length }) => length === 0
    ))
    const [, done, open = 0] = /; retried (\d+) instances so far(?:, and perhaps (\d+) more)?\. Run/.exec(message) ?? []
    const before = (yield* running(test)).length
    assert.isAbove(Number(done), 0)
    assert.isAtMost(Number(done), before)
    assert.isAtLeast(Number(done) + Number(open), before)
    assert.isBelow(before, 60)
    const again = yield* on(test)("retry --status failed --yes --json")
    assert.deepStrictEqual([again.exitCode, JSON.parse(again.stdout).done], [0, 60 - before])
    assert.deepStrictEqual(yield* running(test), numbered(60))
  }))

it.live("Ctrl-C stops it with how far it came", () =>
  Effect.gen(function*() {
    const test = yield* failed(60)
    const proxy = yield* LatencyProxy.proxyFor(test.url, { oneWayMs: 10 })
    let noted = ""
    const stopped = yield* Effect.forkChild(
      on({ url: proxy.through(test.url) })("retry --status failed --yes", { onPrint: (text) => (noted += text) })
    )
    yield* waitUntil(Effect.map(running(test), ({ length }) => length >= 30))
    yield* Fiber.interrupt(stopped)
    const [, done, open] =
      /^error: interrupted; retried ([1-9]\d*) instances so far, and perhaps (\d+) more\. Run the same .*\n$/.exec(
        noted
      )!
    // What was under way may be done later.
    assert.isAtMost((yield* running(test)).length, Number(done) + Number(open))
    assert.isBelow((yield* running(test)).length, 60)
  }))

it.live("interrupt and terminate take running instances, a parent before its child", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    yield* Effect.gen(function*() {
      const client = yield* Client.Client
      // In the order of ids, the child is the first.
      yield* client.start(Trip, { instanceId: "trip-2", payload: { child: "trip-1" } })
      yield* client.start(Sleep, { instanceId: "other" })
      yield* waitUntil(
        Effect.map(test.sql("SELECT FROM history WHERE event_type = 'TimerCreated'"), ({ length }) => length === 2)
      )
    }).pipe(Effect.provide(process(test.url)))
    const run = on(test)
    const interrupted = yield* run(["interrupt", "--id-prefix", "trip", "--deadline", "1 hour", "--yes"])
    assert.strictEqual(
      interrupted.stdout,
      "interrupted 2 instances: they clean up, and then they are Cancelled; they are terminated after 1 hour\n"
    )
    const { stdout } = yield* run("terminate --id-prefix trip --reason rain --yes --json")
    assert.deepInclude(JSON.parse(stdout), { action: "terminated", done: 2 })
    const requests = yield* test.sql<{ instance: string; kind: string }>(
      `SELECT instance_id AS instance, split_part(work_item, '"', 2) AS kind FROM orchestrator_queue
       WHERE work_item LIKE '%duroxide-prisma/interrupt%' OR work_item LIKE '%rain%'
       ORDER BY id`
    )
    assert.deepStrictEqual(requests.map(({ instance, kind }) => `${kind} ${instance}`), [
      "QueueMessage trip-2",
      "QueueMessage trip-1",
      "CancelInstance trip-2",
      "CancelInstance trip-1"
    ])
    const both = yield* run("terminate trip-2 other nope")
    assert.strictEqual(both.exitCode, 1)
    assert.match(both.stdout, /^terminated 2 instances: .*\n1 refused:\n  instance nope not found\n$/)
  }))

it.live("delete: roots that have ended, with their descendants; it asks also about one that is named", () =>
  Effect.gen(function*() {
    const test = yield* failed(4)
    yield* start(test.url, ["order-99"])
    const run = on(test)
    const left = Effect.map(
      test.sql<{ id: string }>("SELECT instance_id AS id FROM instances WHERE parent_instance_id IS NULL ORDER BY 1"),
      (rows) => rows.map(({ id }) => id)
    )
    const unasked = yield* run("delete order-10")
    assert.strictEqual(unasked.exitCode, 2)
    const refused = yield* run("delete order-10", answering("n"))
    assert.strictEqual(refused.exitCode, 1)
    assert.include(refused.stderr, "delete order-10 and 1 descendant? [y/N] ")
    assert.strictEqual((yield* run("delete order-10 order-11", answering("n"))).exitCode, 1)
    assert.deepStrictEqual(yield* left, [...numbered(4), "order-99"])
    const one = yield* run("delete order-10", answering("yes"))
    assert.match(one.stdout, /^deleted order-10: 2 instances, \d+ events\n$/)
    const json = yield* run("delete order-11 --yes --json")
    assert.deepInclude(JSON.parse(json.stdout), { action: "deleted", instanceId: "order-11", instancesDeleted: 2 })
    // What cannot be deleted is not asked about.
    for (
      const [args, text] of [
        ["order-12::sub::2", "instance order-12::sub::2 is a child of order-12: delete the root of its tree"],
        ["order-99", "instance order-99 has not ended: interrupt it first, or delete it with --force"],
        ["nope", "instance nope not found"]
      ]
    ) {
      assert.strictEqual((yield* run(`delete ${args}`, answering("y"))).stderr, `error: ${text}\n`)
    }
    const all = yield* run("delete --id-prefix order --yes")
    assert.strictEqual(all.stdout, "deleted 2 instances with their descendants\n")
    assert.deepStrictEqual(yield* left, ["order-99"])
    assert.lengthOf(yield* test.sql("SELECT FROM instances"), 1)
    assert.strictEqual((yield* run("delete --status running --yes")).exitCode, 2)
    const forced = yield* run("delete --status running --force --yes")
    assert.strictEqual(forced.stdout, "deleted 1 instance with their descendants\n")
    assert.deepStrictEqual(yield* left, [])
  }))

it.live("what cannot be combined is one line, exit code 2", () =>
  Effect.gen(function*() {
    const run = on(yield* PgServer.database)
    const cases = [
      ["retry", "name instances by their ids, or select them with filters such as --status or --name"],
      ["terminate --limit 3", "name instances by their ids, or select them with filters such as --status or --name"],
      ["interrupt a --roots", "name instances by their ids, or select them with filters, not both"],
      ["delete a b --limit 1", "name instances by their ids, or select them with filters, not both"],
      ["retry --status running", "there are no running instances to retry: --status may be failed, cancelled, blocked"],
      ["retry a b --from 3", "--from is an event of one instance: name that one alone"],
      ["delete --parent a", "--parent selects children, which are deleted with the root of their tree"],
      ["interrupt --name A --deadline soon", "--deadline: "]
    ] as const
    for (const [args, text] of cases) {
      const { exitCode, stderr, stdout } = yield* run(args)
      assert.deepStrictEqual([exitCode, stdout], [2, ""], args)
      assert.include(stderr, `error: ${text}`, args)
      assert.lengthOf(stderr.split("\n"), 2)
    }
  }))
