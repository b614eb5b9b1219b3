import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { Provider } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Equal from "effect/Equal"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Database from "../../src/prisma/Database.ts"
import * as App from "../utils/app.ts"
import * as PgServer from "../utils/PgServer.ts"

const Double = Activity.make("Double", { payload: Schema.Number, success: Schema.Number })

const DoubleThrice = Orchestration.make("DoubleThrice", { payload: Schema.Number, success: Schema.Number })

const runtime = Runtime.layer({ orchestrations: [DoubleThrice], activities: [Double] }).pipe(Layer.provide([
  Double.toLayer((n) => Effect.succeed(n * 2)),
  DoubleThrice.toLayer(Effect.fn(function*(n) {
    const once = yield* Double.execute(n)
    const twice = yield* Double.execute(once)
    return yield* Double.execute(twice)
  }))
]))

const lockTimeout = Duration.seconds(30)

// Long enough that no poll happens: every counted statement is caused by work.
const patient = { provider: { longPolling: { aggressivePollInterval: "10 minutes" } } } as const

/** A client learns a result from the turn that stores it; it looks only at an instance that takes 100 ms and more. */
const looksWithin = (ms: number) => Math.floor(ms / 100)

type Counts = Readonly<Record<string, number>>

const since = (before: Counts, after: Counts): Counts =>
  Object.fromEntries(
    Object.entries(after)
      .map(([operation, count]) => [operation, count - (before[operation] ?? 0)] as const)
      .filter(([, count]) => count !== 0)
  )

interface Round {
  readonly sent: Counts
  readonly readEnds: number
  readonly tookMs: number
}

/** Claims that the warm-up has caused may still be under way: rounds count after three in a row without them. */
const assertRounds = Effect.fnUntraced(function*<E, R>(
  round: (name: string) => Effect.Effect<Round, E, R>,
  expected: Counts
) {
  let quiet = 0
  for (let i = 0; i < 8 && quiet < 3; i++) {
    quiet = Equal.equals((yield* round(`early ${i}`)).sent, expected) ? quiet + 1 : 0
  }
  for (let i = 0; i < 3; i++) {
    const { readEnds, sent, tookMs } = yield* round(`${i}`)
    assert.deepStrictEqual(sent, expected)
    assert.isAtMost(readEnds, looksWithin(tookMs))
  }
})

describe("Statements", () => {
  it.live("one instance: a turn is two statements, an activity two", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const { statementCounts } = yield* Database.Database
      // After this, the dispatchers have made their first claims on empty queues.
      yield* client.execute(DoubleThrice, { instanceId: "warm-up", payload: 1 })
      const round = Effect.fnUntraced(function*(instanceId: string) {
        const before = yield* statementCounts
        const begunMs = performance.now()
        assert.strictEqual(yield* client.execute(DoubleThrice, { instanceId, payload: 3 }), 24)
        const tookMs = performance.now() - begunMs
        const { readEnds = 0, ...sent } = since(before, yield* statementCounts)
        return { sent, readEnds, tookMs }
      })
      // Four turns: the start and three results.
      const expected = {
        startOrchestrations: 1,
        fetchOrchestrationItems: 4,
        ackOrchestrationItems: 4,
        fetchWorkItems: 3,
        ackWorkItems: 3
      }
      yield* assertRounds(round, expected)
    }).pipe(Effect.provide(App.layer(runtime, patient))))

  it.live.each<[where: string, isLimited: boolean]>([
    ["", false],
    [", under a limit that does not bind", true]
  ])(
    "one instance, with optimistic turns%s: its start and each step are a statement, and no other",
    ([, isLimited]) =>
      Effect.gen(function*() {
        const { sql } = yield* PgServer.PgServer
        if (isLimited) yield* sql("SELECT dx_set_limit('activity', 'Double', '{\"each_key\": {\"concurrency\": 100}}')")
        const client = yield* Client.Client
        const { statementCounts } = yield* Database.Database
        // After this, the clock of the store is known, and the dispatchers have made claims on empty queues.
        yield* client.execute(DoubleThrice, { instanceId: "warm-up", payload: 1 })
        const round = Effect.fnUntraced(function*(name: string) {
          const before = yield* statementCounts
          const begunMs = performance.now()
          assert.strictEqual(yield* client.execute(DoubleThrice, { instanceId: `${name} a`, payload: 3 }), 24)
          yield* client.start(DoubleThrice, { instanceId: `${name} b`, payload: 1 })
          assert.strictEqual(yield* client.wait(DoubleThrice, `${name} b`), 8)
          const tookMs = performance.now() - begunMs
          const { readEnds = 0, ...sent } = since(before, yield* statementCounts)
          return { sent, readEnds, tookMs }
        })
        const expected = { startOrchestrations: 2, advanceOrchestrations: 6 }
        yield* assertRounds(round, expected)
      }).pipe(
        Effect.provide(App.layer(runtime, { ...patient, runtime: { verifyReplay: false } }))
      )
  )

  it.live("many instances: turns and activities under way together share statements", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const { statementCounts } = yield* Database.Database
      const instances = 100
      yield* Effect.forEach(
        Array.from({ length: instances }, (_, i) => `many-${i}`),
        (instanceId) => client.execute(DoubleThrice, { instanceId, payload: 1 }),
        { concurrency: "unbounded", discard: true }
      )
      const counts = yield* statementCounts
      const turns = instances * 4
      const activities = instances * 3
      assert.isBelow(counts["ackOrchestrationItems"]!, turns / 2)
      assert.isBelow(counts["fetchOrchestrationItems"]!, turns / 2)
      assert.isBelow(counts["ackWorkItems"]!, activities / 2)
      assert.isBelow(counts["startOrchestrations"]!, instances / 2)
      console.log(`${turns} turns and ${activities} activities in ${JSON.stringify(counts)}`)
    }).pipe(Effect.provide(App.layer(runtime, patient))))

  it.live("ackOrchestrationItem: twenty concurrent acks share one statement", () =>
    Effect.gen(function*() {
      const provider = yield* Provider.Provider
      const database = yield* Database.Database
      const instances = Array.from({ length: 20 }, (_, i) => `in-flight-${i}`)
      yield* Effect.forEach(instances, (instance) =>
        provider.enqueueForOrchestrator({
          message: {
            _tag: "StartOrchestration",
            instance,
            orchestration: "Unserved",
            input: "null",
            version: "1.0.0",
            parentInstance: null,
            parentId: null,
            executionId: 1
          },
          delay: Option.none()
        }), { concurrency: "unbounded" })
      const claimed = yield* Effect.forEach(instances, () =>
        provider.fetchOrchestrationItem({
          lockTimeout,
          pollTimeout: lockTimeout,
          versions: Option.none()
        }), { concurrency: "unbounded" })
      const before = yield* database.statementCounts
      yield* Effect.forEach(claimed, (claim) => provider.dropOrchestrationItem(Option.getOrThrow(claim).lockToken), {
        concurrency: "unbounded"
      })
      const after = yield* database.statementCounts
      assert.strictEqual((after["ackOrchestrationItems"] ?? 0) - (before["ackOrchestrationItems"] ?? 0), 1)
      assert.strictEqual(after["fetchOrchestrationItems"], 1)
    }).pipe(Effect.provide(
      Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => App.store(url))).pipe(Layer.provide(PgServer.layer))
    )))
})
