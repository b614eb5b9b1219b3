/**
 * What a partitioned history costs and brings: `npm run partitions -- --rows 1000000 --partitions 16`.
 *
 * Two schemas of one server get the same rows; in one of them history is partitioned. Then both run the same
 * orchestrations in turns, so that what else the machine does hits both. Prints rates, sizes, times of vacuum, and what
 * a partitioned queue would make of one claim. Uses the server of `DATABASE_URL`, else an embedded one.
 */
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Migrator, Partitions, PrismaProvider } from "duroxide-prisma/prisma"
import { DatabaseServer } from "duroxide-prisma/server"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { parseArgs } from "node:util"
import * as pg from "pg"

const { values } = parseArgs({
  options: {
    rows: { type: "string", default: "1000000" },
    partitions: { type: "string", default: "16" },
    rounds: { type: "string", default: "5" },
    seconds: { type: "string", default: "4" }
  }
})
const [rows, partitions, rounds, seconds] = [values.rows, values.partitions, values.rounds, values.seconds].map(Number)

const Step = Activity.make("Step", { payload: Schema.Int, success: Schema.Int })
const Flow = Orchestration.make("Flow", { success: Schema.Int })

const application = (url: string, schema: string, optimisticTurns: boolean) =>
  Client.layer.pipe(
    Layer.provideMerge(
      Runtime.layer({ orchestrations: [Flow], activities: [Step] }).pipe(Layer.provide([
        Step.toLayer((n) => Effect.succeed(n + 1)),
        Flow.toLayer(() => Effect.flatMap(Step.execute(0), Step.execute))
      ]))
    ),
    Layer.provideMerge(RuntimeConfig.layer({ optimisticTurns, workerConcurrency: 64, orchestrationConcurrency: 64 })),
    Layer.provideMerge(PrismaProvider.layer({ url, schema, migrate: "verify" }))
  )

/** Orchestrations per second, of 64 callers. */
const rate = (round: string) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    const until = Date.now() + seconds! * 1000
    let done = 0
    const caller = (n: number) =>
      Effect.gen(function*() {
        for (let i = 0; Date.now() < until; i++) {
          yield* client.execute(Flow, { instanceId: `${round}-${n}-${i}` })
          done++
        }
      })
    yield* Effect.forEach(Array.from({ length: 64 }, (_, n) => n), caller, { concurrency: "unbounded", discard: true })
    return done / seconds!
  })

const median = (numbers: ReadonlyArray<number>) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]!

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
  const sql = <Row>(text: string) => Effect.promise(async () => (await client.query(text)).rows as ReadonlyArray<Row>)
  const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.suspend(() => {
      const begun = performance.now()
      return Effect.map(effect, () => (performance.now() - begun) / 1000)
    })
  const schemas = ["growth_plain", "growth_partitioned"] as const
  for (const schema of schemas) {
    yield* sql(`DROP SCHEMA IF EXISTS ${schema} CASCADE`)
    yield* Effect.addFinalizer(() => sql(`DROP SCHEMA IF EXISTS ${schema} CASCADE`))
    yield* Migrator.migrate({ url, schema })
    yield* sql(
      `INSERT INTO ${schema}.history SELECT 'old-' || n / 10, 1, n % 10 + 1, 'ActivityCompleted', repeat('x', 300), now()
       FROM generate_series(0, ${rows! - 1}) AS n`
    )
    yield* sql(`VACUUM ANALYZE ${schema}.history`)
  }
  const turned = yield* timed(Partitions.apply({ url, schema: "growth_partitioned", partitions: partitions! }))
  yield* sql("CHECKPOINT")
  yield* Console.log(`${rows} rows of history, ${partitions} partitions: turned in ${turned.toFixed(1)} s`)

  for (const optimisticTurns of [true, false]) {
    const rates: Record<string, Array<number>> = {}
    for (const schema of schemas) rates[schema] = []
    // The first round warms up.
    for (let round = 0; round <= rounds!; round++) {
      for (const schema of round % 2 === 0 ? schemas : schemas.toReversed()) {
        const measured = yield* rate(`r${optimisticTurns ? "o" : "c"}${round}`).pipe(
          Effect.provide(application(url, schema, optimisticTurns))
        )
        if (round > 0) rates[schema]!.push(measured)
      }
    }
    yield* Console.log(
      `orchestrations/s, ${optimisticTurns ? "optimistic turns" : "every turn claimed"}: ` +
        schemas.map((schema) => `${schema} ${median(rates[schema]!).toFixed(0)}`).join(", ")
    )
  }

  for (const schema of schemas) {
    // An old twentieth is deleted, as pruning does.
    yield* sql(`DELETE FROM ${schema}.history WHERE right(instance_id, 2) IN ('00', '20', '40', '60', '80')`)
    const vacuum = yield* timed(sql(`VACUUM ${schema}.history`))
    const [size] = yield* sql<{ total: string; largest: string; index: string }>(
      `SELECT pg_size_pretty(sum(pg_total_relation_size(c.oid))) AS total,
         pg_size_pretty(max(pg_total_relation_size(c.oid))) AS largest,
         pg_size_pretty(max(pg_indexes_size(c.oid))) AS index
       FROM pg_class AS c WHERE c.relnamespace = '${schema}'::regnamespace AND c.relname LIKE 'history%' AND c.relkind = 'r'`
    )
    const parts = yield* sql<{ name: string }>(
      `SELECT c.relname AS name FROM pg_class AS c WHERE c.relnamespace = '${schema}'::regnamespace
       AND c.relkind = 'r' AND c.relname LIKE 'history%' ORDER BY 1 LIMIT 1`
    )
    yield* sql(`DELETE FROM ${schema}.history WHERE right(instance_id, 2) IN ('10', '30', '50', '70', '90')`)
    const one = yield* timed(sql(`VACUUM ${schema}.${parts[0]!.name}`))
    yield* Console.log(
      `${schema}: all ${size!.total}, largest table ${size!.largest}, its index ${size!.index}; ` +
        `vacuum of all ${vacuum.toFixed(2)} s, of one table ${one.toFixed(2)} s`
    )
  }

  // The head of a queue by route and time, as a claim looks for it.
  for (const [name, clause] of [["one table", ""], [`${partitions} partitions`, " PARTITION BY HASH (instance_id)"]]) {
    yield* sql("DROP TABLE IF EXISTS growth_plain.queue")
    yield* sql(
      `CREATE TABLE growth_plain.queue (id bigint, instance_id text, route text, visible_at timestamptz, locked_until bigint)${clause}`
    )
    if (clause !== "") {
      for (let i = 0; i < partitions!; i++) {
        yield* sql(
          `CREATE TABLE growth_plain.queue_${i} PARTITION OF growth_plain.queue FOR VALUES WITH (MODULUS ${partitions}, REMAINDER ${i})`
        )
      }
    }
    yield* sql("CREATE INDEX ON growth_plain.queue (route, visible_at)")
    yield* sql(
      `INSERT INTO growth_plain.queue SELECT n, 'i-' || n, 'r', now() + n * interval '1 second', NULL
       FROM generate_series(1, 100000) AS n; ANALYZE growth_plain.queue`
    )
    const head = `growth_plain.queue WHERE route = 'r' AND visible_at <= now() + interval '1 day'
       ORDER BY visible_at LIMIT 1 FOR UPDATE SKIP LOCKED`
    const looks = 10_000
    const lasted = yield* timed(
      sql(`DO $$ BEGIN FOR i IN 1 .. ${looks} LOOP PERFORM id FROM ${head}; END LOOP; END $$`)
    )
    const plan = yield* sql<{ "QUERY PLAN": string }>(
      `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) SELECT id FROM ${head}`
    )
    const buffers = plan.map((row) => row["QUERY PLAN"]).find((line) => line.includes("Buffers:"))
    yield* Console.log(
      `the head of a queue, ${name}: ${(lasted / looks * 1e6).toFixed(0)} µs, ${buffers?.trim() ?? ""}`
    )
  }
})

const MainLive = Layer.provideMerge(Logger.layer([]), DatabaseServer.layer({ directory: ".duroxide/partitions" }))

Effect.runPromise(Effect.provide(Effect.scoped(program), MainLive)).catch((error: unknown) => {
  console.error(error)
  process.exitCode = 1
})
