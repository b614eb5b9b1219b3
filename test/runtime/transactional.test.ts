import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Metrics, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { FromDriver, MemoryDriver, ProviderError } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Tracer from "effect/Tracer"
import { counts, isolated } from "../utils/metrics.ts"

class Refused extends Schema.TaggedError<Refused>()("Refused", { n: Schema.Int }) {}

const Book = Activity.make("Book", { payload: Schema.Int, success: Schema.Int, error: Refused, retry: { times: 1 } })

const Booking = Orchestration.make("Booking", { payload: Schema.Int, success: Schema.Int, error: Refused })

/** Transactions over an array. */
const table = (commits: () => unknown = () => undefined) => {
  const rows: Array<string> = []
  const transactions: Activity.Transactions<Array<string>> = {
    run: async (body) => {
      const written: Array<string> = []
      const result = await body(written)
      const fault = commits()
      if (fault !== undefined) throw fault
      rows.push(...written)
      return result
    },
    connection: () => ({ query: () => Promise.resolve({ rows: [] }) })
  }
  return { rows, transactions }
}

const runtime = (
  { transactions }: Pick<ReturnType<typeof table>, "transactions">,
  handler: (n: number, written: Array<string>) => Effect.Effect<number, Refused, Activity.Call>
) =>
  Runtime.layer({ orchestrations: [Booking], activities: [Book] }).pipe(
    Layer.provide([
      Booking.toLayer((n) => Book.execute(n)),
      Book.toLayer(Activity.transactional(transactions, handler))
    ]),
    Layer.provide(Logger.layer([]))
  )

const write = (written: Array<string>, text: string) => Effect.sync(() => void written.push(text))

describe("Activity.transactional in virtual time:", () => {
  it.effect("rows and result: once each, also after a typed failure and a second try", () => {
    const shop = table()
    return Effect.gen(function*() {
      const client = yield* Client.Client
      assert.strictEqual(yield* client.execute(Booking, { instanceId: "b", payload: 4 }), 5)
      assert.deepStrictEqual(shop.rows, ["4 in try 2"])
      const events = yield* TestRuntime.history("b")
      assert.deepStrictEqual(
        events.map(({ _tag }) => _tag).filter((tag) => tag.startsWith("Activity")),
        ["ActivityScheduled", "ActivityFailed", "ActivityScheduled", "ActivityCompleted"]
      )
    }).pipe(Effect.provide(TestRuntime.layer(runtime(shop, (n, written) =>
      Effect.gen(function*() {
        const { tryNumber } = yield* Activity.Call
        yield* write(written, `${n} in try ${tryNumber}`)
        return tryNumber === 1 ? yield* new Refused({ n }) : n + 1
      })))))
  })

  it.effect("a commit that fails by an outage is not recorded: it runs again after a pause", () => {
    let commits = 0
    const shop = table(() =>
      ++commits === 1 ? Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" }) : undefined
    )
    return Effect.gen(function*() {
      const client = yield* Client.Client
      assert.strictEqual(yield* client.execute(Booking, { instanceId: "b", payload: 4 }), 4)
      assert.deepStrictEqual([commits, shop.rows], [2, ["4"]])
      assert.lengthOf((yield* TestRuntime.history("b")).filter(({ _tag }) => _tag === "ActivityScheduled"), 1)
    }).pipe(
      Effect.provide(TestRuntime.layer(runtime(shop, (n, written) => Effect.as(write(written, String(n)), n))))
    )
  })

  it.effect("a handler that never ends is interrupted with its instance, and its rows are rolled back", () => {
    const shop = table()
    let interrupted = 0
    return Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Booking, { instanceId: "b", payload: 4 })
      yield* client.terminate("b", "no longer wanted")
      yield* TestRuntime.runToEnd("b")
      yield* TestRuntime.settle
      assert.deepStrictEqual([interrupted, shop.rows], [1, []])
    }).pipe(Effect.provide(TestRuntime.layer(runtime(shop, (n, written) =>
      write(written, String(n)).pipe(
        Effect.andThen(Effect.sleep(Infinity)),
        Effect.as(n),
        Effect.onInterrupt(() => Effect.sync(() => void interrupted++))
      )))))
  })

  it.effect("a process that dies before its commit runs it again, one that dies after it does not", () => {
    const shop = table()
    return Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Booking, { instanceId: "b", payload: 4 })
      yield* TestRuntime.crash
      assert.strictEqual(yield* client.wait(Booking, "b"), 4)
      yield* TestRuntime.crash
      assert.deepStrictEqual(shop.rows, ["delivery 2"])
    }).pipe(Effect.provide(TestRuntime.layer(runtime(shop, (n, written) =>
      Effect.gen(function*() {
        const { deliveryNumber } = yield* Activity.Call
        yield* write(written, `delivery ${deliveryNumber}`)
        yield* Effect.sleep("1 second")
        return n
      })))))
  })
})

it.effect("options, sessions, tags, traces and metrics are those of any activity", () => {
  const shop = table()
  const spans: Array<string> = []
  const seen: Array<unknown> = []
  const tracer = Tracer.make({
    span: (options) => {
      spans.push(options.name)
      return new Tracer.NativeSpan(options)
    }
  })
  const Tour = Orchestration.make("Tour", { success: Schema.Int, error: Refused })
  const TourLive = Tour.toLayer(() => Book.with({ tag: "gpu", sessionId: "film" }).execute(7))
  const processLayer = Runtime.layer({ orchestrations: [Tour], activities: [Book] }).pipe(
    Layer.provide([
      TourLive,
      Book.toLayer(Activity.transactional(shop.transactions, (n, written) =>
        Effect.gen(function*() {
          const { sessionId, tag, tryNumber } = yield* Activity.Call
          seen.push([Option.getOrNull(sessionId), Option.getOrNull(tag), tryNumber])
          yield* Effect.withSpan(write(written, String(n)), "write")
          return n
        })))
    ]),
    Layer.provide(RuntimeConfig.layer({ tags: { _tag: "Tags", tags: ["gpu"] } }))
  )
  return Effect.gen(function*() {
    const client = yield* Client.Client
    const ran = Effect.withSpan(client.execute(Tour, { instanceId: "t" }), "request")
    assert.strictEqual(yield* ran, 7)
    assert.deepStrictEqual([shop.rows, seen], [["7"], [["film", "gpu", 1]]])
    assert.includeMembers(spans, ["activity Book", "write"])
    assert.deepStrictEqual(yield* counts(Metrics.activityExecutions), { "Book success gpu": 1 })
  }).pipe(
    Effect.provide(Layer.merge(TestRuntime.layer(processLayer), Logger.layer([]))),
    Effect.withTracer(tracer),
    isolated
  )
})

it.effect("a transactions object that commits although its handler failed is a death, not a result", () => {
  const shop = table()
  const careless: typeof shop.transactions = {
    ...shop.transactions,
    run: (body) => shop.transactions.run(body).catch(() => undefined as never)
  }
  return Effect.gen(function*() {
    const client = yield* Client.Client
    const failed = yield* Effect.flip(client.execute(Booking, { instanceId: "b", payload: 4 }))
    assert.include(failed.message, "must pass on rejections")
  }).pipe(Effect.provide(TestRuntime.layer(runtime({ transactions: careless }, (n) => new Refused({ n })))))
})

it.effect("a provider without transactions refuses transactional activities when the runtime is built", () =>
  Effect.gen(function*() {
    const built = runtime(table(), Effect.succeed).pipe(
      Layer.provide(FromDriver.layer()),
      Layer.provide(MemoryDriver.layer)
    )
    const exit = yield* Effect.exit(Layer.build(built))
    assert.isTrue(Exit.isFailure(exit))
    const defect = Exit.isFailure(exit) ? Cause.squash(exit.cause) : undefined
    assert.instanceOf(defect, ProviderError.ProviderError)
    assert.strictEqual(defect.reason._tag, "ConfigurationInvalid")
    assert.include(defect.message, "activity \"Book\" is transactional")
  }).pipe(Effect.scoped))
