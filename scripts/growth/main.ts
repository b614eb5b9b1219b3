/**
 * Whether a store that has grown answers as a small one does: `npm run growth`.
 *
 * Measures pages, counts, explanations, starts, claims and the dashboard in a small store, fills it by SQL with ended
 * and live instances, and measures again. Then orchestrations run under full load, in turn alone and beside open pages
 * of the dashboard, which another process serves; then in turn alone and beside retention, until retention has deleted
 * what has expired. Prints medians and their ratios. Uses the server of `DATABASE_URL`, else an
 * embedded one; 10,000,000 instances take some minutes and 10 GB, to delete 1,000,000 an hour.
 */
import { Activity, Client, Orchestration, Retention, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { Dashboard } from "duroxide-prisma/dashboard"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Admin } from "duroxide-prisma/provider"
import { DatabaseServer } from "duroxide-prisma/server"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as HttpEffect from "effect/http/HttpEffect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import * as pg from "pg"

const { values } = parseArgs({
  options: {
    ended: { type: "string", default: "10000000" },
    live: { type: "string", default: "100000" },
    expired: { type: "string", default: "1000000" },
    calls: { type: "string", default: "200" },
    seconds: { type: "string", default: "60" },
    /** Length of the windows without retention. */
    aloneSeconds: { type: "string", default: "60" },
    pairs: { type: "string", default: "1000" },
    pagePairs: { type: "string", default: "10" },
    pages: { type: "string", default: "10" },
    schema: { type: "string", default: "growth" }
  }
})
const [ended, live, expired, calls, seconds, aloneSeconds, pairs, pagePairs, pages] = [
  values.ended,
  values.live,
  values.expired,
  values.calls,
  values.seconds,
  values.aloneSeconds,
  values.pairs,
  values.pagePairs,
  values.pages
].map(Number) as [number, number, number, number, number, number, number, number, number]
const { schema } = values

const Step = Activity.make("Step", { payload: Schema.Int, success: Schema.Int })
const Flow = Orchestration.make("Flow", { success: Schema.Array(Schema.Int) })
const Approved = Signal.make("Approved")
const Wait = Orchestration.make("Wait")

const application = (url: string, retention: Layer.Layer<never>) =>
  Client.layer.pipe(
    Layer.provideMerge(
      Runtime.layer({ orchestrations: [Flow, Wait], activities: [Step] }).pipe(Layer.provide([
        Step.toLayer((n) => Effect.succeed(n)),
        Flow.toLayer(() => Effect.all([0, 1, 2, 3, 4].map(Step.execute), { concurrency: "unbounded" })),
        Wait.toLayer(() => Approved.wait),
        retention
      ]))
    ),
    Layer.provideMerge(RuntimeConfig.layer({ workerConcurrency: 64, orchestrationConcurrency: 64 })),
    Layer.provideMerge(PrismaProvider.layer({ url, schema })),
    Layer.provideMerge(Logger.layer([]))
  )

const median = (numbers: ReadonlyArray<number>) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]!

/** Median milliseconds of a call. */
const timed = Effect.fnUntraced(function*<A, E, R>(call: (n: number) => Effect.Effect<A, E, R>) {
  const times: Array<number> = []
  for (let n = 0; n < calls; n++) {
    const begun = performance.now()
    yield* call(n)
    times.push(performance.now() - begun)
  }
  // The first ones fill caches.
  return median(times.slice(Math.floor(calls / 10)))
})

const names = Array.from({ length: 5 }, (_, n) => `Name ${n}`)

const measure = Effect.fnUntraced(function*(round: string) {
  const admin = yield* Admin.Admin
  const client = yield* Client.Client
  yield* client.start(Wait, { instanceId: `explained ${round}` })
  const { next } = yield* admin.list({ limit: 20 })
  const page = (search: Parameters<typeof admin.list>[0]) => timed(() => admin.list({ limit: 20, ...search }))
  return {
    "page, the newest": yield* page({}),
    "page, the second": yield* page({ cursor: next ?? undefined }),
    "page, running": yield* page({ status: "Running" }),
    "page, failed of a name": yield* page({ status: "Failed", name: names[1] }),
    "page, oldest running": yield* page({ status: "Running", orderBy: "oldest" }),
    "count of a name": yield* timed(() => admin.count({ name: names[0] })),
    "count by status": yield* timed(() => admin.count()),
    explain: yield* timed(() => admin.explain(`explained ${round}`)),
    start: yield* timed((n) => client.start(Wait, { instanceId: `start ${round} ${n}` })),
    ...yield* measureDashboard,
    "start to end": yield* timed((n) => client.execute(Flow, { instanceId: `flow ${round} ${n}` }))
  }
})

/** The dashboard, not yet looked at. */
const openDashboard = Effect.map(
  HttpRouter.toHttpEffect(Dashboard.layer({ path: "/", access: Dashboard.trusted() })),
  (app) => {
    const handler = HttpEffect.toWebHandler(app)
    return (path: string) =>
      Effect.promise(async () => {
        const response = await handler(new Request(`http://localhost/api/${path}`))
        const text = await response.text()
        if (response.status !== 200) throw new Error(`${path}: ${response.status} ${text}`)
      })
  }
)

const measureDashboard = Effect.gen(function*() {
  const get = yield* openDashboard
  return {
    // What the page asks for at once. The next ones share what was read.
    "dashboard, first view": yield* timed(() =>
      Effect.scoped(
        Effect.flatMap(openDashboard, (get) =>
          Effect.all([get("session"), get("overview"), get("instances"), get("reasons")], {
            concurrency: "unbounded"
          }))
      )
    ),
    "dashboard, a page": yield* timed(() => get("instances?status=Running")),
    "dashboard, definitions": yield* timed(() => get("definitions"))
  }
}).pipe(Effect.scoped)

/**
 * Open pages. Each follows the live stream, and shows one view: the overview, which reads the reasons every ten
 * seconds, or a list, which is read every five.
 */
const openPages = (base: string, signal: AbortSignal) => {
  const page = async (n: number) => {
    const live = await fetch(`${base}api/live`, { headers: pageHeaders, signal })
    const reading = (async () => {
      for await (const _ of live.body!) if (signal.aborted) return
    })()
    const [path, everyMs] = views[n % views.length]!
    const view = (async () => {
      while (!signal.aborted) {
        await (await fetch(`${base}api/${path}`, { headers: pageHeaders, signal })).text()
        await new Promise((resolve) => setTimeout(resolve, everyMs))
      }
    })()
    await Promise.allSettled([reading, view])
  }
  return Promise.allSettled(Array.from({ length: pages }, (_, n) => page(n)))
}

const views = [
  ["reasons", 10_000],
  ["instances?status=Running", 5_000],
  ["reasons", 10_000],
  ["instances?status=Failed", 5_000]
] as const

const token = "growth growth growth"
const pageHeaders = { authorization: `Bearer ${token}` }

/** The dashboard in a process of its own, until the scope is closed; returns its address. */
const serveDashboard = (url: string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const cli = fileURLToPath(new URL("../../../dist/cli/main.js", import.meta.url))
        const child = spawn(process.execPath, [cli, "ui", "--schema", schema, "--port", "0"], {
          stdio: ["ignore", "pipe", "inherit"],
          env: { ...process.env, DATABASE_URL: url, DUROXIDE_UI_TOKEN: token }
        })
        const [text] = await Promise.race([
          once(child.stdout, "data") as Promise<[Buffer]>,
          once(child, "exit").then(([code]) => Promise.reject(new Error(`ui has ended with exit code ${code}`)))
        ])
        return { child, base: text.toString().split("\n")[0]! }
      }),
      ({ child }) =>
        Effect.promise(async () => {
          if (child.exitCode === null && child.kill("SIGINT")) await once(child, "exit")
        })
    ),
    ({ base }) => base
  )

/** Orchestrations per second of 20 callers. */
const rate = Effect.fnUntraced(function*(round: string, seconds: number) {
  const client = yield* Client.Client
  const until = Date.now() + seconds * 1000
  let done = 0
  const caller = (n: number) =>
    Effect.gen(function*() {
      for (let i = 0; Date.now() < until; i++) {
        yield* client.execute(Flow, { instanceId: `${round}-${n}-${i}` })
        done++
      }
    })
  yield* Effect.forEach(Array.from({ length: 20 }, (_, n) => n), caller, { concurrency: "unbounded", discard: true })
  return done / seconds
})

/** The rate of an application that is opened for it, once it is warm. */
const rateWith = (url: string, round: string, retention: Layer.Layer<never>, forSeconds = seconds) =>
  rate(`${round} warm`, 5).pipe(
    Effect.andThen(rate(round, forSeconds)),
    Effect.provide(application(url, retention))
  )

const times = (from: number, to: number) =>
  `generate_series(${from}, ${to}) AS g, to_timestamp(
    extract(epoch FROM now()) - g / 100.0 - CASE WHEN g > ${ended - expired} THEN 40 ELSE 0 END * 86400
  ) AS at`

/** Instances that have ended, a hundred a second, one of them failed; the last ones 40 days ago. */
const fill = (from: number, to: number) => `
  INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at, status, route)
  SELECT 'ended ' || g, 'Name ' || g % ${names.length}, '1.0.0', at, at,
    CASE WHEN g % 100 = 1 THEN 'Failed' ELSE 'Completed' END, '1000.1.0 =1.0.0 Name'
  FROM ${times(from, to)};
  INSERT INTO executions (instance_id, execution_id, status, output, started_at, completed_at, duroxide_version_major,
    duroxide_version_minor, duroxide_version_patch)
  SELECT 'ended ' || g, 1, CASE WHEN g % 100 = 1 THEN 'Failed' ELSE 'Completed' END, '"ok"', at, at, 1000, 1, 0
  FROM ${times(from, to)};
  INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
  SELECT 'ended ' || g, 1, e, 'Event', '{"type":"CustomStatusUpdated"}', now()
  FROM generate_series(${from}, ${to}) AS g, generate_series(1, 2) AS e;`

const fillLive = (count: number) => `
  INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at, route)
  SELECT 'live ' || g, 'Name ' || g % ${names.length}, '1.0.0', at, at, '1000.1.0 =1.0.0 Name'
  FROM generate_series(1, ${count}) AS g, to_timestamp(extract(epoch FROM now()) - g) AS at;
  INSERT INTO executions (instance_id, execution_id, status, started_at, duroxide_version_major, duroxide_version_minor,
    duroxide_version_patch)
  SELECT 'live ' || g, 1, 'Running', now(), 1000, 1, 0 FROM generate_series(1, ${count}) AS g;`

const program = Effect.gen(function*() {
  const server = yield* DatabaseServer.DatabaseServer
  const url = Redacted.value(server.url)
  const client = yield* Effect.acquireRelease(
    Effect.promise(async () => {
      const client = new pg.Client(url)
      client.on("error", () => {}) // the running statement reports it
      await client.connect()
      return client
    }),
    (client) => Effect.promise(() => client.end())
  )
  const sql = (text: string) => Effect.promise(async () => (await client.query(text)).rows)
  yield* sql(`DROP SCHEMA IF EXISTS ${schema} CASCADE`)

  const small = yield* Effect.gen(function*() {
    yield* sql(`SET search_path = ${schema}`)
    yield* sql(`${fill(1, 10_000)} ${fillLive(1000)} ANALYZE instances, executions;`)
    return yield* measure("small")
  }).pipe(Effect.provide(application(url, Retention.layer("off"))))

  const begun = Date.now()
  const step = 500_000
  for (let from = 10_001; from <= ended; from += step) {
    yield* sql(fill(from, Math.min(ended, from + step - 1)))
    yield* Console.error(`${Math.min(ended, from + step - 1).toLocaleString("en-US")} ended instances`)
  }
  yield* sql(
    `DELETE FROM instances WHERE instance_id LIKE 'live %'; DELETE FROM executions WHERE instance_id LIKE 'live %';`
  )
  yield* sql(fillLive(live))
  for (const table of ["instances", "executions", "history"]) yield* sql(`VACUUM (ANALYZE) ${table}`)
  yield* sql("CHECKPOINT")
  yield* Console.error(`filled in ${Math.round((Date.now() - begun) / 1000)} s`)

  const big = yield* measure("big").pipe(Effect.provide(application(url, Retention.layer("off"))))

  const withoutPages: Array<number> = []
  const withPages: Array<number> = []
  const base = yield* serveDashboard(url)
  for (let pair = 0; pair < pagePairs; pair++) {
    withoutPages.push(yield* rateWith(url, `no pages ${pair}`, Retention.layer("off")))
    const stop = new AbortController()
    const open = openPages(base, stop.signal)
    withPages.push(yield* rateWith(url, `pages ${pair}`, Retention.layer("off")))
    stop.abort()
    yield* Effect.promise(() => open)
    yield* Console.error(
      `${Math.round(withoutPages.at(-1)!)} a second alone, ${Math.round(withPages.at(-1)!)} beside ${pages} open pages`
    )
  }

  const counted = Effect.map(
    sql("SELECT count(*)::int AS count FROM instances WHERE instance_id LIKE 'ended %'"),
    ([row]) => row.count as number
  )
  const before = yield* counted
  const expiring = Retention.layer({ interval: "100 millis", completed: "30 days", failed: "30 days" })
  const alone: Array<number> = []
  const beside: Array<number> = []
  let deleted = 0
  while (alone.length < pairs && deleted < expired) {
    const name = `${alone.length}`
    alone.push(yield* rateWith(url, `alone ${name}`, Retention.layer("off"), aloneSeconds))
    beside.push(yield* rateWith(url, `beside ${name}`, expiring))
    deleted = before - (yield* counted)
    yield* Console.error(
      `${Math.round(alone.at(-1)!)} a second alone, ${
        Math.round(beside.at(-1)!)
      } beside retention, which has deleted ` +
        deleted.toLocaleString("en-US")
    )
  }

  const ms = (value: number) => value.toFixed(2).padStart(9)
  yield* Console.log(`ms, median of ${calls}            small       big   ratio`)
  for (const [name, value] of Object.entries(small)) {
    const other = big[name as keyof typeof big]
    yield* Console.log(`${name.padEnd(24)}${ms(value)} ${ms(other)} ${(other / value).toFixed(2).padStart(7)}`)
  }
  if (withPages.length > 0) {
    const ratio = median(withPages.map((rate, pair) => rate / withoutPages[pair]!))
    yield* Console.log(
      `orchestrations a second: ${Math.round(median(withoutPages))} alone, ${Math.round(median(withPages))} beside ` +
        `${pages} open pages; median of the ratios ${ratio.toFixed(2)}`
    )
  }
  if (alone.length === 0) return
  const ratio = median(beside.map((rate, pair) => rate / alone[pair]!))
  yield* Console.log(
    `orchestrations a second: ${Math.round(median(alone))} alone, ${
      Math.round(median(beside))
    } beside retention, which ` +
      `deleted ${deleted.toLocaleString("en-US")} instances; median of the ratios ${ratio.toFixed(2)}`
  )
})

await Effect.runPromise(
  program.pipe(Effect.scoped, Effect.provide([DatabaseServer.layer(), Logger.layer([])]))
)
