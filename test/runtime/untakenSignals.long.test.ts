import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { MemoryDriver, ProviderDriver, WorkItem } from "duroxide-prisma/provider"
import { replayHistory } from "duroxide-prisma/testing"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as App from "../utils/app.ts"
import * as LocalProcess from "../utils/localProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { session } from "../utils/session.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Words = Signal.make("Words", { payload: Schema.String })
const Others = Signal.make("Others", { payload: Schema.String })

const Progress = Schema.Struct({ next: Schema.Int, count: Schema.Int })

/** Reads one message per execution: the words, in order, then messages of the other name. */
const Reads = Orchestration.make("Reads", { payload: Progress, success: Schema.Array(Schema.String) })

const ReadsLive = Reads.toLayer(Effect.fn(function*({ count, next }) {
  const word = yield* Words.wait
  if (label(word) !== String(next)) return yield* Effect.die(`read ${label(word)} instead of ${next}`)
  if (next + 1 < count) return yield* Reads.continueAsNew({ next: next + 1, count })
  return [label(yield* Others.wait), label(yield* Others.wait)]
}))

const length = 1024 * 1024
const letter = (name: string) => `${name} ${"x".repeat(length)}`
const label = (text: string) => text.slice(0, text.indexOf(" "))

/** Opens when the mail of a test has arrived. */
const Gate = Activity.make("Gate", { payload: Schema.Int })

/** Reads one word per execution, after an activity. */
const Visits = Orchestration.make("Visits", { payload: Progress, success: Schema.Int })

const VisitsLive = Visits.toLayer(Effect.fn(function*({ count, next }) {
  yield* Gate.execute(next)
  const word = yield* Words.wait
  if (label(word) !== String(next)) return yield* Effect.die(`read ${label(word)} instead of ${next}`)
  return next + 1 < count ? yield* Visits.continueAsNew({ next: next + 1, count }) : next
}))

/** Reads 1,500 words per execution, after an activity. */
const Heaps = Orchestration.make("Heaps", { payload: Progress, success: Schema.Int })

const HeapsLive = Heaps.toLayer(Effect.fn(function*({ count, next }) {
  yield* Gate.execute(next)
  for (let i = next; i < next + 1_500; i++) {
    const word = yield* Words.wait
    if (label(word) !== String(i)) return yield* Effect.die(`read ${label(word)} instead of ${i}`)
  }
  return next + 1_500 < count ? yield* Heaps.continueAsNew({ next: next + 1_500, count }) : count
}))

const RuntimeLive = Runtime.layer({ orchestrations: [Reads], activities: [] }).pipe(Layer.provide(ReadsLive))

const layer = Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => App.store(url))).pipe(
  Layer.provideMerge(PgServer.layer)
)

const send = Effect.fnUntraced(function*(instanceId: string, count: number) {
  const client = yield* Client.Client
  yield* client.start(Reads, { instanceId, payload: { next: 0, count } })
  // Before there is a process that reads them.
  for (let i = 0; i < count; i++) {
    if (i === 1 || i === 2) yield* client.send(Others, instanceId, letter(`other${i}`))
    yield* client.send(Words, instanceId, letter(String(i)))
  }
})

/** One of a set of words that are sent at once. */
const mail = (instanceId: string, word: string) => ({
  instanceId,
  workItem: WorkItem.encode({
    _tag: "QueueMessage",
    instance: instanceId,
    name: Words.name,
    data: JSON.stringify(word)
  }),
  visibleAtMs: null,
  delayMs: null
})

/** The longest event that begins an execution, bytes: it holds what was carried over. */
const longestStart = (instanceId: string) =>
  Effect.flatMap(PgServer.PgServer, ({ sql }) =>
    Effect.map(
      sql<{ executions: number; longest: number }>(
        `SELECT count(*)::int AS executions, max(octet_length(event_data))::int AS longest
         FROM history WHERE instance_id = $1 AND event_type = 'OrchestrationStarted'`,
        [instanceId]
      ),
      ([row]) => row!
    ))

it.layer(layer, { excludeTestServices: true })("Large mail at continueAsNew:", (it) => {
  it.effect("stays in the queue until it is read, in order", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const count = 24
      yield* send("reads", count)
      yield* Layer.build(RuntimeLive)
      assert.deepStrictEqual(yield* client.wait(Reads, "reads"), ["other1", "other2"])
      const { executions, longest } = yield* longestStart("reads")
      assert.strictEqual(executions, count)
      assert.isBelow(longest, length)
    }).pipe(Effect.scoped))

  it.effect("any amount of small mail does not delay a cancellation", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const driver = yield* ProviderDriver.ProviderDriver
      // More than a batch takes, and more than the limit if it were large.
      const count = 5_000
      yield* client.start(Reads, { instanceId: "small", payload: { next: 0, count } })
      const words = Array.from({ length: count }, (_, i) => mail("small", `${i} ${"x".repeat(100)}`))
      yield* driver.enqueueForOrchestrator(words)
      yield* client.terminate("small", "test")
      yield* Layer.build(RuntimeLive)
      assert.strictEqual((yield* Effect.flip(client.wait(Reads, "small")))._tag, "InstanceCancelled")
      assert.isBelow((yield* longestStart("small")).executions, 10)
    }).pipe(Effect.scoped))

  it.effect(
    "returns to the queue when the history has it, and is read once and in order",
    () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const { sql } = yield* PgServer.PgServer
        const gate = yield* Deferred.make<void>()
        const GateLive = Gate.toLayer(() => Deferred.await(gate))
        yield* Layer.build(
          Runtime.layer({ orchestrations: [Visits], activities: [Gate] }).pipe(Layer.provide([VisitsLive, GateLive]))
        )
        const count = 5
        yield* client.start(Visits, { instanceId: "visits", payload: { next: 0, count } })
        for (let i = 0; i < count; i++) yield* client.send(Words, "visits", `${i} ${"x".repeat(4 * length - 100)}`)
        const queued = sql("SELECT FROM orchestrator_queue WHERE instance_id = 'visits'")
        yield* waitUntil(Effect.map(queued, (rows) => rows.length === 0))
        yield* Deferred.succeed(gate, undefined)
        assert.strictEqual(yield* client.wait(Visits, "visits"), count - 1)
        const { executions, longest } = yield* longestStart("visits")
        assert.strictEqual(executions, count)
        assert.isBelow(longest, length)
      }).pipe(Effect.scoped)
  )

  it.effect("of small messages returns to the queue beyond 8 MiB, in order", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const driver = yield* ProviderDriver.ProviderDriver
      const { sql } = yield* PgServer.PgServer
      const gate = yield* Deferred.make<void>()
      const GateLive = Gate.toLayer(() => Deferred.await(gate))
      yield* Layer.build(
        Runtime.layer({ orchestrations: [Heaps], activities: [Gate] }).pipe(Layer.provide([HeapsLive, GateLive]))
      )
      const count = 6_000
      yield* client.start(Heaps, { instanceId: "heaps", payload: { next: 0, count } })
      const words = Array.from({ length: count }, (_, i) => mail("heaps", `${i} ${"x".repeat(3_000)}`))
      yield* driver.enqueueForOrchestrator(words)
      const queued = sql("SELECT FROM orchestrator_queue WHERE instance_id = 'heaps'")
      yield* waitUntil(Effect.map(queued, (rows) => rows.length === 0))
      yield* Deferred.succeed(gate, undefined)
      assert.strictEqual(yield* client.wait(Heaps, "heaps"), count)
      const { executions, longest } = yield* longestStart("heaps")
      assert.strictEqual(executions, 4)
      assert.isBelow(longest, 9 * length)
      assert.isAbove(longest, 7 * length)
    }).pipe(Effect.scoped))

  it.effect("does not hide a start, though it was sent before and committed after it", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const sender = yield* session(yield* PgServer.PgServer)
      const count = 6
      for (let i = 0; i < count; i++) {
        const { instanceId, workItem } = mail("hidden", `${i} ${"x".repeat(4 * length - 100)}`)
        yield* sender(
          "SELECT dx_enqueue_for_orchestrator(jsonb_build_array(jsonb_build_object('instance_id', $1::text, 'work_item', $2::text)))",
          [instanceId, workItem]
        )
      }
      yield* client.start(Reads, { instanceId: "hidden", payload: { next: 0, count } })
      yield* sender("COMMIT")
      for (const i of [1, 2]) yield* client.send(Others, "hidden", letter(`other${i}`))
      yield* Layer.build(RuntimeLive)
      assert.deepStrictEqual(yield* client.wait(Reads, "hidden"), ["other1", "other2"])
    }).pipe(Effect.scoped))

  it.effect(
    "also stays there when every turn is replayed, and its history can be replayed again",
    () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const { sql } = yield* PgServer.PgServer
        yield* send("verified", 5)
        yield* Layer.build(RuntimeLive.pipe(Layer.provide(RuntimeConfig.layer({ verifyReplay: true }))))
        assert.deepStrictEqual(yield* client.wait(Reads, "verified"), ["other1", "other2"])
        assert.isBelow((yield* longestStart("verified")).longest, length)
        const history = yield* sql<{ event_data: string }>(
          "SELECT event_data FROM history WHERE instance_id = 'verified' ORDER BY execution_id, event_id"
        )
        yield* replayHistory(Reads, history).pipe(Effect.provide(ReadsLive))
      }).pipe(Effect.scoped)
  )
})

/** Takes two messages, and continues in the next execution. */
const Pairs = Orchestration.make("Pairs", { payload: Schema.Int, success: Schema.Int })

const PairsLive = Pairs.toLayer(Effect.fn(function*(pair) {
  const words = [label(yield* Words.wait), label(yield* Words.wait)]
  yield* Effect.log(`pair ${words.join(" and ")}`)
  return words[0] === "last" ? pair : yield* Pairs.continueAsNew(pair + 1)
}))

describe("Mail at continueAsNew:", () => {
  /** One message, after which the instance is warm; then all others at once, in the same batch. */
  const play = Effect.fnUntraced(function*(size: number) {
    const driver = yield* ProviderDriver.ProviderDriver
    const lines: Array<string> = []
    const logger = Logger.layer([
      Logger.make(({ message }) => void (String(message).startsWith("pair") && lines.push(String(message))))
    ])
    const { client } = yield* LocalProcess.start(
      Runtime.layer({ orchestrations: [Pairs], activities: [] }).pipe(Layer.provide([PairsLive, logger]))
    )
    yield* client.start(Pairs, { instanceId: "i", payload: 0 })
    yield* client.send(Words, "i", "0 ")
    const history = (executionId: number) => driver.readHistory({ instanceId: "i", executionId })
    yield* waitUntil(Effect.map(history(1), (events) => events.some((event) => event.includes("\"0 "))))
    const rest = ["1", "2", "3", "4", "5", "last", "end"]
    yield* driver.enqueueForOrchestrator(rest.map((name) => mail("i", `${name} ${"x".repeat(size)}`)))
    const pairs = yield* client.wait(Pairs, "i")
    const starts = yield* Effect.forEach([1, 2, 3, 4], (id) => Effect.map(history(id), ([start]) => start!))
    return { pairs, lines, starts, first: yield* history(1) }
  })
  const lines = ["pair 0 and 1", "pair 2 and 3", "pair 4 and 5", "pair last and end"]

  it.live("a warm program leaves large mail, and logs every line once", () =>
    Effect.gen(function*() {
      const played = yield* play(100_000)
      assert.strictEqual(played.pairs, 3)
      assert.deepStrictEqual(played.lines, lines)
      for (const start of played.starts.slice(0, 3)) assert.isBelow(start.length, 100_000)
      assert.notInclude(played.first.join(), "\"2 ")
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.live("up to 256 KiB are carried over into the next execution", () =>
    Effect.gen(function*() {
      const played = yield* play(40_000)
      assert.strictEqual(played.pairs, 3)
      assert.deepStrictEqual(played.lines, lines)
      assert.isAbove(played.starts[1]!.length, 6 * 40_000)
      assert.include(played.first.join(), "\"2 ")
    }).pipe(Effect.provide(MemoryDriver.layer)))
})
