/**
 * `top`: what it counts, and how it draws.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as LatencyProxy from "../programs/latencyProxy.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Cli from "./cli.ts"

/** Rows as processes leave them. A minute ago is within the interval of the tests, two hours ago is not. */
const contents = `
  INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at, status)
  SELECT name || n, name, '1.0.0', now() - created::interval, now() - updated::interval, status
  FROM (VALUES
    ('Order', 1, '1 minute', '1 minute', 'Running'),
    ('Order', 2, '2 hours', '1 minute', 'Running'),
    ('Order', 3, '1 minute', '1 minute', 'Completed'),
    ('Order', 4, '2 hours', '1 minute', 'Completed'),
    ('Order', 5, '3 hours', '2 hours', 'Completed'),
    ('Order', 6, '2 hours', '1 minute', 'Failed'),
    ('Crawl', 1, '2 hours', '1 minute', 'Cancelled'),
    ('Crawl', 2, '2 hours', '2 hours', 'Running'),
    ('Past', 1, '2 hours', '2 hours', 'Completed')
  ) AS one (name, n, created, updated, status);
  INSERT INTO blocked_instances (
    instance_id, execution_id, since, tried_at, tries, build, reason, problem, event_id, last_event_id
  )
  VALUES ('Order2', 1, now(), now(), 1, 'one', 'HistoryDiffers', 'differs', 2, 2);
  -- Due, later, with a turn that runs, paused, waiting for its start.
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
  VALUES
    ('Order1', '{}', now() - interval '5 minutes', now() - interval '1 hour', '1000.1.0 =1.0.0 Order'),
    ('Order1', '{}', now() + interval '5 minutes', now() - interval '1 hour', '1000.1.0 =1.0.0 Order'),
    ('Order2', '{}', now() - interval '5 minutes', now() - interval '1 hour', '1000.1.0 =1.0.0 Order'),
    ('Crawl2', '{}', now() - interval '5 minutes', now() - interval '1 hour', '1000.1.0 >2.0.0 Crawl'),
    ('early', '{}', now() - interval '5 minutes', now() - interval '1 hour', '');
  UPDATE orchestrator_queue SET route = '' WHERE instance_id = 'early';
  INSERT INTO instance_locks (instance_id, lock_token, locked_at, locked_until)
  VALUES
    ('Order2', 'token', 0, extract(epoch FROM now() + interval '1 hour') * 1000),
    ('Crawl2', '', 0, extract(epoch FROM now() + interval '1 hour') * 1000);
  INSERT INTO worker_queue (work_item, visible_at, created_at, locked_until, tag, session_id)
  SELECT
    '{"ActivityExecute":{"name":"Render"}}', now() - ago::interval, now() - interval '3 hours',
    extract(epoch FROM now() + locked::interval) * 1000, tag, session
  FROM (VALUES
    ('10 minutes', '-1 minute', 'gpu', NULL),
    ('2 minutes', NULL, 'gpu', 'session'),
    ('2 hours', '1 hour', 'gpu', NULL),
    ('2 hours', '1 hour', NULL, NULL),
    ('-1 hour', NULL, NULL, NULL)
  ) AS one (ago, locked, tag, session);
  INSERT INTO processes (
    id, build, host, pid, orchestrations, activities, untagged, tags, orchestration_slots, activity_slots, since,
    seen_at, listens
  )
  VALUES
    ('b0000000-0000-4000-8000-000000000000', 'old', 'h', 2, '{}', '{Render}', true, '{gpu}', 1, 1, now() - interval '1 hour', now(), true),
    ('a0000000-0000-4000-8000-000000000000', 'new', 'h', 1, '{Order@1.0.0}', '{}', true, '{}', 16, 8, now(), now(), true);
  SELECT pg_advisory_lock_shared(dx_process_key('a0000000-0000-4000-8000-000000000000'))`

const on = ({ url }: { readonly url: string }) => (args: ReadonlyArray<string>, options: Cli.Options = {}) =>
  Cli.run(["top", ...args], { ...options, env: { DATABASE_URL: url, NO_COLOR: "1" } })

it.live("--once says what happened in the interval, and what is due", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    yield* test.sql(contents)
    const run = on(test)
    const { exitCode, stderr, stdout } = yield* run(["--once", "--interval", "1 hour", "--json"])
    assert.deepStrictEqual([exitCode, stderr], [0, ""])
    const { at, due, perSecond, orchestrations, ...found } = JSON.parse(stdout)
    assert.isAbove(Date.parse(at), 0)
    assert.deepInclude(found, {
      deadTasks: 0,
      seconds: 3600,
      instances: { Cancelled: 1, Completed: 4, Failed: 1, Running: 3 },
      instancesAreEstimates: false,
      blocked: 1,
      paused: { targets: [], instances: 0 },
      processes: [
        {
          host: "h",
          pid: 2,
          build: "old",
          alive: false,
          slots: { orchestrations: 1, activities: 1 },
          slotsInUse: null
        },
        { host: "h", pid: 1, build: "new", alive: true, slots: { orchestrations: 16, activities: 8 }, slotsInUse: null }
      ]
    })
    const inHour = (perSecond: Record<string, number>) =>
      Object.fromEntries(Object.entries(perSecond).map(([name, rate]) => [name, Math.round(rate * 3600)]))
    assert.deepStrictEqual(inHour(perSecond), { started: 2, completed: 2, failed: 1, cancelled: 1 })
    assert.deepStrictEqual(
      orchestrations.map((one: { perSecond: Record<string, number> }) => ({
        ...one,
        perSecond: inHour(one.perSecond)
      })),
      [
        {
          orchestration: "Order",
          running: 2,
          isEstimate: false,
          perSecond: { started: 2, completed: 2, failed: 1, cancelled: 0 }
        },
        {
          orchestration: "Crawl",
          running: 1,
          isEstimate: false,
          perSecond: { started: 0, completed: 0, failed: 0, cancelled: 1 }
        }
      ]
    )
    const ages = new Map<string, number | null>(
      due.map(({ name, oldestAgeMs, tag }: { name: string; tag: string | null; oldestAgeMs: number | null }) => [
        `${name} ${tag}`,
        oldestAgeMs === null ? null : Math.floor(oldestAgeMs / 60_000)
      ])
    )
    // The lock of the oldest activity that waits ran out a minute ago; that of the session has waited longer.
    assert.deepStrictEqual(ages, new Map([["Order null", 5], ["Render gpu", 2], ["Render null", null]]))
    const none = { version: null, isMore: false, oldestAgeMs: 0, paused: false }
    assert.deepStrictEqual(due.map((one: object) => ({ ...one, oldestAgeMs: 0 })), [
      {
        ...none,
        kind: "orchestration",
        name: "Order",
        version: "1.0.0",
        tag: null,
        waiting: 1,
        running: 1,
        servedBy: 1
      },
      { ...none, kind: "activity", name: "Render", tag: "gpu", waiting: 2, running: 1, servedBy: 0 },
      { ...none, kind: "activity", name: "Render", tag: null, waiting: 0, running: 1, servedBy: 0 }
    ])
    const text = yield* run(["--once", "--interval", "1 hour"])
    assert.match(text.stdout, /^instances +9: 1 Cancelled, 4 Completed, 1 Failed, 3 Running$/m)
    assert.match(text.stdout, /^per second +0\.0 started, 0\.0 ended, 0\.0 failed$/m)
    assert.match(text.stdout, /^waiting +3, the oldest for 5 min: Order 1\.0\.0$/m)
    assert.match(text.stdout, /^blocked +1 instance\nprocesses +1 alive, 1 dead$/m)
    assert.match(text.stdout, /^activity Render with tag gpu +2 +1 +2 min +0$/m)
    assert.match(text.stdout, /^h\/1 +new +alive .* \? of 16 +-$/m)
  }))

it.live("a large store is not read as a whole", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    yield* test.sql(`
      INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at, route, status)
      SELECT 'i' || n, 'Big', now() - n * interval '1 second', now(), '- * Big', CASE WHEN n % 2 = 0 THEN 'Running' ELSE 'Completed' END
      FROM generate_series(1, 30000) AS n;
      INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
      SELECT 'i' || n, '{"TimerFired":{}}', now() + n * interval '1 hour', now(), '- * Big'
      FROM generate_series(-1500, 30000) AS n;
      INSERT INTO worker_queue (work_item, visible_at, created_at)
      SELECT '{"ActivityExecute":{"name":"Render"}}', now() + interval '1 hour', now() FROM generate_series(1, 30000)`)
    yield* test.sql("ANALYZE instances, orchestrator_queue, worker_queue")
    const scanned = Effect.map(
      test.sql<{ scans: number; rows: number }>(
        `SELECT sum(idx_scan)::int AS scans, sum(seq_tup_read)::int AS rows FROM pg_stat_user_tables
         WHERE relname IN ('instances', 'orchestrator_queue', 'worker_queue')`
      ),
      ([row]) => row!
    )
    const before = yield* scanned
    const { stdout } = yield* on(test)(["--once", "--json"])
    const { due, instancesAreEstimates } = JSON.parse(stdout)
    assert.isTrue(instancesAreEstimates)
    assert.deepInclude(due[0], { name: "Big", waiting: 1000, isMore: true })
    // The server learns of it when the connections have ended.
    yield* waitUntil(Effect.map(scanned, ({ scans }) => scans > before.scans))
    assert.isBelow((yield* scanned).rows - before.rows, 100)
  }))

const name = (n: number) => `SynchroniseEveryCustomerOfAllRegions${n}`

/** More names, and longer ones, than a small terminal shows. */
const many = `
  INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at, route)
  SELECT 'i' || n, '${name(0).slice(0, -1)}' || n, now(), now(), '- * ${name(0).slice(0, -1)}' || n
  FROM generate_series(1, 9) AS n;
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
  SELECT i.instance_id, '{}', now() - interval '5 minutes', now() - interval '1 hour', i.route FROM instances AS i;
  INSERT INTO worker_queue (work_item, visible_at, created_at, instance_id, execution_id, activity_id, attempt_count)
  VALUES ('{"ActivityExecute":{"name":"Render"}}', now(), now(), 'i1', 1, 2, 2);
  INSERT INTO queue_tasks
    (id, name, payload, status, max_attempts, run_at, queue, created_at, updated_at, dead_at)
  VALUES (gen_random_uuid(), 'resize', '{}', 'Dead', 20, now(), 'tasks', now(), now(), now());
  INSERT INTO processes (
    id, build, host, pid, orchestrations, activities, untagged, tags, orchestration_slots, activity_slots, since,
    seen_at, listens
  )
  SELECT
    gen_random_uuid(), 'a-build-with-a-name', 'worker-7f6d8c9b5-' || n, 1, '{}', '{}', true, '{}', 1, 1, now(), now(),
    true
  FROM generate_series(1, 9) AS n`

/** The lines of the first frame on a terminal of this size. */
const frame = Effect.fnUntraced(function*(run: ReturnType<typeof on>, columns: number, rows: number) {
  let text = ""
  let press = (_key: string) => {}
  const fiber = yield* Effect.forkChild(run([], {
    terminal: columns,
    rows,
    onKeys: (pressed) => (press = pressed),
    onPrint: (printed) => (text += printed)
  }))
  yield* waitUntil(Effect.sync(() => text.includes("\u001b[J")))
  press("q")
  yield* Fiber.join(fiber)
  return text.split("\u001b[J")[0]!.split("\u001b[H")[1]!.split("\r\n").map((line) => line.replace("\u001b[K", ""))
    .slice(0, -1)
})

it.live("on a small terminal it shortens names and leaves columns and rows out, and says so", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    yield* test.sql(many)
    const run = on(test)
    for (const [columns, rows] of [[60, 24], [44, 24], [60, 40], [100, 14], [60, 10], [30, 5]] as const) {
      const lines = yield* frame(run, columns, rows)
      const size = `${columns} x ${rows}:\n${lines.join("\n")}`
      assert.isAtMost(lines.length, rows - 1, size)
      if (columns > 30) assert.isAtMost(Math.max(...lines.map((line) => line.length)), columns, size)
      if (rows >= 10) assert.strictEqual(lines.at(-1), "q quits", size)
      if (rows >= 14) assert.match(lines.join("\n"), /^DUE +WAITING.* SERVED BY$/m, size)
    }
    const small = (yield* frame(run, 60, 24)).join("\n")
    assert.match(small, /^DUE +WAITING +RUNNING +OLDEST +SERVED BY\nSync[a-zA-Z]+…[a-zA-Z]+Regions\d +1 +0 +5 min +0$/m)
    assert.lengthOf(small.match(/^and [78] more$/gm) ?? [], 3, small)
    assert.match(small, /^dead +1 task; see tasks --status dead$/m)
    const narrow = (yield* frame(run, 44, 24)).join("\n")
    assert.match(narrow, /^DUE +WAITING +OLDEST +SERVED BY$/m)
    assert.match(narrow, /^PROCESS +STATE/m)
    const low = (yield* frame(run, 100, 14)).join("\n")
    assert.include(low, "and 9 orchestrations, 9 processes")
    assert.include((yield* frame(run, 30, 5)).join("\n"), "…")
    // A pipe has no width.
    assert.include((yield* run(["--once"])).stdout, name(9))
  }))

/** The frames that it has drawn. */
const watched = (run: ReturnType<typeof on>, ...args: ReadonlyArray<string>) => {
  const screen = { text: "", press: (_key: string) => {} }
  return Effect.map(
    Effect.forkChild(run(["--interval", "100 millis", ...args], {
      terminal: 100,
      onKeys: (press) => (screen.press = press),
      onPrint: (text, to) => {
        if (to === "stdout") screen.text += text
      }
    })),
    (fiber) => ({
      fiber,
      press: (key: string) => screen.press(key),
      shows: (text: string) => waitUntil(Effect.sync(() => screen.text.split("\u001b[H").at(-1)!.includes(text)))
    })
  )
}

it.live("draws again until q or Ctrl-C, and leaves the terminal as it was", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    for (const key of ["q", "\u0003"]) {
      yield* test.sql("DELETE FROM instances")
      const { fiber, press, shows } = yield* watched(on(test))
      yield* shows("instances   none")
      yield* test.sql(
        `INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at)
         SELECT 'a' || n, 'Order' || n, now(), now() FROM generate_series(1, 40) AS n`
      )
      yield* shows("instances   40: 40 Running")
      press("x")
      press(key)
      const { exitCode, stderr, stdout } = yield* Fiber.join(fiber)
      assert.deepStrictEqual([exitCode, stderr], [0, ""])
      assert.isTrue(stdout.startsWith("\u001b[?1049h"))
      assert.isTrue(stdout.endsWith("\u001b[?1049l"))
      const frame = stdout.split("\u001b[H").at(-1)!
      assert.isAtMost(frame.split("\r\n").length, 30)
      assert.match(frame, /and \d+ more.*\r\nq quits/)
    }
  }))

it.live("keeps what it knew while the store does not answer, and continues", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    const proxy = yield* LatencyProxy.proxyFor(test.url)
    const { fiber, press, shows } = yield* watched(on({ url: proxy.through(test.url) }))
    yield* shows("instances   none")
    proxy.state.isDown = true
    proxy.reset()
    yield* shows("no connection to the database")
    yield* shows("instances   none")
    proxy.state.isDown = false
    yield* test.sql(
      "INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at) VALUES ('a', 'Order', now(), now())"
    )
    yield* shows("instances   1: 1 Running")
    press("q")
    assert.strictEqual((yield* Fiber.join(fiber)).exitCode, 0)
  }))

it.live("without a terminal it prints once or not at all", () =>
  Effect.gen(function*() {
    const run = on(yield* PgServer.database)
    for (const [args, options] of [[[], {}], [["--json"], { terminal: 80 }]] as const) {
      const { exitCode, stderr, stdout } = yield* run(args, options)
      assert.deepStrictEqual([exitCode, stdout], [2, ""])
      assert.include(stderr, "it draws on a terminal: give --once to print it")
    }
    assert.strictEqual((yield* run(["--once", "--interval", "1 millis"])).exitCode, 2)
    for (
      const [given, problem] of [
        ["1", "add a unit, such as \"1 second\""],
        ["0.5", "add a unit, such as \"0.5 seconds\""],
        ["soon", "it is not a duration of 0 or more: write \"10 minutes\" or \"1 hour\""]
      ] as const
    ) {
      const { exitCode, stderr } = yield* run(["--once", "--interval", given])
      assert.deepStrictEqual([exitCode, stderr], [2, `error: --interval: ${problem}\n`])
    }
    for (const interval of ["2 seconds", "2s", "1min"]) {
      assert.match((yield* run(["--once", "--interval", interval])).stdout, /^instances +none$/m)
    }
  }))
