import { assert, describe, it } from "@effect/vitest"
import { Client, KeyValue, Orchestration, Request, Runtime, Signal } from "duroxide-prisma"
import { FromDriver, MemoryDriver, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { keptAnswers } from "../src/model/shared/requestSignal.ts"
import * as Database from "../src/prisma/Database.ts"
import * as PrismaDriver from "../src/prisma/PrismaDriver.ts"
import * as LocalProcess from "./utils/localProcess.ts"
import * as PgServer from "./utils/PgServer.ts"

const Add = Request.make("Add", { payload: Schema.Int, success: Schema.Int })
const Total = KeyValue.make("total", Schema.Int)
const Own = KeyValue.make("own", Schema.String)
const Next = Signal.make("Next")
const Close = Signal.make("Close")

/** Adds up what it is asked to add; each execution serves until `Next`. */
const Counter = Orchestration.make("Counter", { payload: Schema.Int, success: Schema.Int })

const runtime = Runtime.layer({ orchestrations: [Counter] }).pipe(Layer.provide(Counter.toLayer(
  Effect.fn(function*(before) {
    let total = before
    yield* Own.set("mine")
    yield* KeyValue.clearAll
    yield* Add.serve(
      Effect.fn(function*(amount) {
        total += amount
        yield* Total.set(total)
        yield* Orchestration.setCustomStatus(`total ${total}`)
        return total
      }),
      { concurrency: 4 }
    )
    yield* Effect.raceFirst(Close.wait, Effect.flatMap(Next.wait, () => Counter.continueAsNew(total)))
    return total
  })
)))

const postgres = Layer.unwrap(
  Effect.map(
    PgServer.PgServer,
    ({ url }) => PrismaDriver.layer().pipe(Layer.provide(Database.layer({ url })), Layer.orDie)
  )
).pipe(Layer.provide(PgServer.layer))

const stores: ReadonlyArray<readonly [string, Layer.Layer<ProviderDriver.ProviderDriver>]> = [
  ["in memory", MemoryDriver.layer],
  ["on PostgreSQL", postgres]
]

const clientOver = Effect.fnUntraced(function*(driver: ProviderDriver.ProviderDriver["Service"]) {
  const client = Client.layer.pipe(
    Layer.provide(FromDriver.layer()),
    Layer.provide(Layer.succeed(ProviderDriver.ProviderDriver, driver))
  )
  return Context.get(yield* Layer.build(Layer.fresh(client)), Client.Client)
})

describe.each(stores)("A client %s", (_, store) => {
  /** The client of a process that runs "a", and of one that only asks. */
  const scenario = <A, E>(
    test: (
      running: Client.Client["Service"],
      asking: Client.Client["Service"]
    ) => Effect.Effect<A, E, ProviderDriver.ProviderDriver>
  ) =>
    Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(runtime)
      const other = yield* Layer.build(Layer.fresh(Client.layer.pipe(Layer.provide(FromDriver.layer()))))
      yield* client.start(Counter, { instanceId: "a", payload: 0 })
      return yield* test(client, Context.get(other, Client.Client))
    }).pipe(Effect.scoped, Effect.provide([store, Logger.layer([])]))

  it.live("is answered here and in another process, once for each id, over executions", () =>
    scenario(Effect.fn(function*(running, asking) {
      const ask = (client: Client.Client["Service"], amount: number, requestId: string) =>
        client.request(Add, "a", amount, { requestId })
      const all = yield* Effect.forEach(
        [running, asking, running, asking],
        (client, i) => ask(client, 1, `r${i % 2}`),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(all.toSorted((a, b) => a - b), [1, 1, 2, 2])
      assert.deepStrictEqual([all[0], all[1]], [all[2], all[3]])
      yield* running.send(Next, "a")
      assert.strictEqual(yield* ask(asking, 1, "r0"), all[0])
      assert.strictEqual(yield* ask(asking, 5, "r2"), 7)
      yield* running.send(Close, "a")
      assert.strictEqual(yield* asking.wait(Counter, "a"), 7)
      assert.strictEqual(yield* ask(asking, 5, "r2"), 7)
      const ended = yield* Effect.flip(ask(asking, 5, "r3"))
      assert.deepStrictEqual(ended, new Client.InstanceEnded({ instanceId: "a", waitedFor: "answer" }))
    })))

  it.live("keeps the newest answers, hides them from its program, and answers many callers at once", () =>
    scenario(Effect.fn(function*(running, asking) {
      const count = keptAnswers * 3
      const sums = yield* Effect.forEach(
        Array.from({ length: count }, (_, i) => i),
        (i) => asking.request(Add, "a", 1, { requestId: `r${i}` }),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(sums.toSorted((a, b) => a - b), Array.from({ length: count }, (_, i) => i + 1))
      // The first thing that an execution does is to remove all its values.
      yield* running.send(Next, "a")
      assert.strictEqual(yield* asking.request(Add, "a", 1), count + 1)
      assert.strictEqual(yield* asking.request(Add, "a", 1, { requestId: "r0" }), sums[0])
      assert.deepStrictEqual(yield* running.read(Own, "a"), Option.none())
    })))

  it.live("repeats its question after an answer of the store is lost", () =>
    scenario(Effect.fn(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      let lost = 0
      const lossy = LocalProcess.intercept(driver, (call, operation) =>
        operation === "enqueueForOrchestrator" && lost < 2
          ? Effect.andThen(
            call,
            Effect.suspend(() => {
              lost++
              const reason = new ProviderError.ConnectionLost({ problem: "the answer is lost" })
              return Effect.fail(new ProviderError.ProviderError({ operation, reason }))
            })
          )
          : call)
      const client = yield* clientOver(lossy)
      assert.strictEqual(yield* client.request(Add, "a", 1), 1)
      assert.strictEqual(lost, 2)
      assert.strictEqual(yield* client.request(Add, "a", 1), 2)
    }, Effect.scoped)))

  it.live("repeats no question once its time is over", () =>
    scenario(Effect.fn(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      let tries = 0
      const silent = LocalProcess.intercept(driver, (call, operation) =>
        operation === "enqueueForOrchestrator"
          ? Effect.suspend(() => {
            tries++
            const reason = new ProviderError.ConnectionLost({ problem: "no answer" })
            return Effect.fail(new ProviderError.ProviderError({ operation, reason }))
          })
          : call)
      const client = yield* clientOver(silent)
      const error = yield* Effect.flip(client.request(Add, "a", 1, { timeout: "150 millis" }))
      assert.strictEqual(error._tag, "ProviderError")
      assert.isAtMost(tries, 4)
    }, Effect.scoped)))

  it.live("watches statuses, values and the end, and continues behind a cursor", () =>
    scenario(Effect.fn(function*(running, asking) {
      const shown = (events: ReadonlyArray<Client.WatchEvent<number>>) =>
        events.map((event) =>
          event._tag === "Status"
            ? Option.getOrNull(event.status)
            : event._tag === "Value"
            ? Option.getOrNull(event.value)
            : event.status._tag
        )
      const watching = yield* Effect.forkChild(Stream.runCollect(asking.watch("a", { keys: [Total] })))
      yield* running.request(Add, "a", 3)
      const first = yield* Stream.runCollect(Stream.take(running.watch("a", { keys: [Total] }), 2))
      assert.sameMembers(shown(first), ["total 3", 3])
      yield* running.request(Add, "a", 4)
      const after = { keys: [Total], after: first[1]!.cursor }
      const second = yield* Stream.runCollect(Stream.take(running.watch("a", after), 2))
      assert.sameMembers(shown(second), ["total 7", 7])
      yield* running.send(Close, "a")
      const all = yield* Fiber.join(watching)
      assert.includeMembers(shown(all), ["total 7", 7])
      assert.deepStrictEqual(shown(all.slice(-1)), ["Completed"])
      const end = yield* Stream.runCollect(asking.watch("a", { keys: [Total], after: all.at(-1)!.cursor }))
      assert.deepStrictEqual(end, [{
        _tag: "Ended",
        status: { _tag: "Completed", output: "7" },
        cursor: all.at(-1)!.cursor
      }])
      const bad = yield* Effect.flip(Stream.runDrain(asking.watch("a", { after: "no cursor" })))
      assert.strictEqual(bad._tag === "ProviderError" && bad.reason._tag, "InvalidInput")
    })))
})
