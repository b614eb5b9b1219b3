import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { MemoryDriver } from "duroxide-prisma/provider"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const inMemory = Effect.provide([MemoryDriver.layer, Logger.layer([])])

/** Polls less often than by default: the tests pass many minutes. */
const start = (runtime: Parameters<typeof LocalProcess.start>[0], options?: RuntimeConfig.Options) =>
  LocalProcess.start(runtime, {
    runtime: options ?? {},
    provider: { longPolling: { aggressivePollInterval: "5 seconds" } }
  })

const Book = Orchestration.make("Book", { success: Schema.String })
const Charge = Activity.make("Charge", { success: Schema.String })
const Notes = Signal.make("Notes", { payload: Schema.String })

/** What the world has seen. */
interface World {
  readonly charged: Array<string>
}

const charge = ({ charged }: World) =>
  Charge.toLayer(() =>
    Effect.map(Activity.Call, ({ instanceId }) => {
      charged.push(instanceId)
      return "charged"
    })
  )

/** Charges, waits for ten minutes, and takes three notes. */
const book = Effect.gen(function*() {
  yield* Charge.execute()
  yield* Effect.sleep("10 minutes")
  const notes = [yield* Notes.wait, yield* Notes.wait, yield* Notes.wait]
  return notes.join(" ")
})
const original = Book.toLayer(() => book)

/** An edit in place: a pause comes first. */
const edited = Book.toLayer(() => Effect.as(Effect.andThen(Effect.sleep("1 minute"), Charge.execute()), "edited"))

/** The pause comes first where an execution begins with this code. */
const asking = Book.toLayer(() =>
  Effect.flatMap(
    Orchestration.changed("pause"),
    (isNew) => isNew ? Effect.andThen(Effect.sleep("1 minute"), book) : book
  )
)

const serving = (world: World, program: Layer.Layer<Orchestration.Handler<"Book", "1.0.0">>) =>
  Runtime.layer({ orchestrations: [Book], activities: [Charge] }).pipe(Layer.provide([program, charge(world)]))

/** Lets so many seconds pass, or fewer if it ends. */
const untilEnded = Effect.fnUntraced(function*(client: Client.Client["Service"], instanceId: string, seconds: number) {
  for (let left = seconds; left > 0 && (yield* client.status(instanceId))._tag === "Running"; left--) {
    yield* TestClock.adjust("1 second")
  }
})

const blockOf = Effect.fnUntraced(function*(client: Client.Client["Service"], instanceId: string) {
  const status = yield* client.status(instanceId)
  return status._tag === "Running" ? Option.getOrUndefined(status.block) : assert.fail(`it is ${status._tag}`)
})

/** Lets a process with the original program begin these instances, and stop. */
const leave = Effect.fnUntraced(function*(world: World, ...ids: ReadonlyArray<string>) {
  const { client, stop } = yield* start(serving(world, original))
  for (const instanceId of ids) yield* client.start(Book, { instanceId })
  yield* TestClock.adjust("1 second")
  yield* stop
})

/** Soon, although the pauses have grown to a minute. */
const endsWithNotes = Effect.fnUntraced(function*(client: Client.Client["Service"]) {
  yield* untilEnded(client, "a", 20)
  assert.strictEqual(yield* client.wait(Book, "a", { timeout: 0 }), "one two three")
})

describe("A program that was edited in place", () => {
  it.effect("blocks its instances, which keep everything and continue when the old code is back", () =>
    Effect.gen(function*() {
      const world: World = { charged: [] }
      const ids = ["a", "b", "c"]
      yield* leave(world, ...ids)

      const wrong = yield* start(serving(world, edited), { build: "wrong" })
      yield* TestClock.adjust("15 minutes")
      for (const instanceId of ids) {
        const block = yield* blockOf(wrong.client, instanceId)
        assert.deepInclude(block, { reason: "HistoryDiffers", eventId: 2, build: "wrong" })
        assert.strictEqual(
          block?.problem,
          `event 2: history has activity "Charge", the code asks for timer`
        )
        assert.isAtLeast(block!.tries, 2)
      }
      for (const note of ["one", "two", "three"]) yield* wrong.client.send(Notes, "a", note)
      yield* TestClock.adjust("15 minutes")
      yield* wrong.stop

      const right = yield* start(serving(world, original))
      yield* endsWithNotes(right.client)
      assert.isUndefined(yield* blockOf(right.client, "b"))
      assert.deepStrictEqual(world.charged.toSorted(), ids)
    }).pipe(inMemory))

  it.effect("and dies where its history continues blocks its instances, too; the log says once of what", () =>
    Effect.gen(function*() {
      const world: World = { charged: [] }
      yield* leave(world, "a")

      const deaths: Array<string> = []
      const logger = Logger.make<unknown, void>(({ cause, message }) => {
        if (String(message).includes("program died")) deaths.push(`${String(message)} ${Cause.pretty(cause)}`)
      })
      const dying = Book.toLayer(() => Effect.andThen(Charge.execute(), Effect.die(new TypeError("a new bug"))))
      const wrong = yield* start(serving(world, dying)).pipe(Effect.provide(Logger.layer([logger])))
      yield* TestClock.adjust("15 minutes")
      assert.deepInclude(yield* blockOf(wrong.client, "a"), {
        reason: "HistoryDiffers",
        problem: "event 4: history has timer, the code has died",
        eventId: 4
      })
      assert.lengthOf(deaths, 1)
      assert.match(deaths[0]!, /program died, its instance is blocked .*TypeError: a new bug/)
      yield* wrong.stop

      const right = yield* start(serving(world, original))
      for (const note of ["one", "two", "three"]) yield* right.client.send(Notes, "a", note)
      yield* endsWithNotes(right.client)
      assert.deepStrictEqual(world.charged, ["a"])
    }).pipe(inMemory))

  it.effect("does not stop a fleet with both builds", () =>
    Effect.gen(function*() {
      const world: World = { charged: [] }
      const right = yield* start(serving(world, original), { warmInstances: 0 })
      yield* right.client.start(Book, { instanceId: "a" })
      for (const note of ["one", "two", "three"]) yield* right.client.send(Notes, "a", note)
      yield* TestClock.adjust("1 second")
      yield* start(serving(world, edited), { warmInstances: 0 })
      yield* TestClock.adjust("30 minutes")
      assert.strictEqual(yield* right.client.wait(Book, "a", { timeout: 0 }), "one two three")
      assert.deepStrictEqual(world.charged, ["a"])
    }).pipe(inMemory))

  it.effect("blocks in old processes what took the branch of a change, and new ones continue it", () =>
    Effect.gen(function*() {
      const world: World = { charged: [] }
      const first = yield* start(serving(world, original))
      yield* first.client.start(Book, { instanceId: "before" })
      yield* TestClock.adjust("1 second")
      yield* first.stop
      const released = yield* start(serving(world, asking))
      yield* released.client.start(Book, { instanceId: "after" })
      yield* TestClock.adjust("1 second")
      yield* released.stop

      const old = yield* start(serving(world, original), { build: "old" })
      yield* TestClock.adjust("2 minutes")
      const block = yield* blockOf(old.client, "after")
      assert.deepInclude(block, { reason: "HistoryDiffers", eventId: 4, build: "old" })
      assert.strictEqual(block?.problem, `event 4: history has timer, the code asks for activity "Charge"`)
      assert.isUndefined(yield* blockOf(old.client, "before"))
      yield* old.stop

      const back = yield* start(serving(world, asking))
      for (const instanceId of ["before", "after"]) {
        for (const note of ["one", "two", "three"]) yield* back.client.send(Notes, instanceId, note)
      }
      yield* TestClock.adjust("12 minutes")
      for (const instanceId of ["before", "after"]) {
        assert.strictEqual(yield* back.client.wait(Book, instanceId, { timeout: 0 }), "one two three")
      }
      assert.deepStrictEqual(world.charged, ["before", "after"])
    }).pipe(inMemory))

  it.effect("can still be cancelled", () =>
    Effect.gen(function*() {
      const world: World = { charged: [] }
      yield* leave(world, "a")
      const wrong = yield* start(serving(world, edited))
      yield* TestClock.adjust("15 minutes")
      yield* wrong.client.terminate("a", "not worth it")
      yield* TestClock.adjust("2 minutes")
      const error = yield* Effect.flip(wrong.client.wait(Book, "a", { timeout: 0 }))
      assert.instanceOf(error, Client.InstanceCancelled)
      assert.strictEqual(error.reason, "not worth it")
    }).pipe(inMemory))

  it.effect("fails for good where the settings say so", () =>
    Effect.gen(function*() {
      const world: World = { charged: [] }
      yield* leave(world, "a")
      const wrong = yield* start(serving(world, edited), { onMismatch: "fail" })
      yield* TestClock.adjust("15 minutes")
      const error = yield* Effect.flip(wrong.client.wait(Book, "a", { timeout: 0 }))
      assert.instanceOf(error, Client.InstanceFailed)
      assert.include(error.message, `history has activity "Charge"`)
    }).pipe(inMemory))
})

type Part = "payload" | "input" | "result" | "message" | "value"

const Old = Schema.Struct({ room: Schema.Int })
const New = Schema.Struct({ room: Schema.Int, floor: Schema.Int })

/** A build in which a field of `changed` is required that the old build does not know. */
const build = (ran: Array<string>, changed?: Part) => {
  const schemaOf = (part: Part): Schema.Codec<{ readonly room: number }> => part === changed ? New : Old
  const Stay = Orchestration.make("Stay", { payload: schemaOf("payload"), success: Schema.String })
  const Reserve = Activity.make("Reserve", { payload: schemaOf("input"), success: schemaOf("result") })
  const Room = KeyValue.make("room", schemaOf("value"))
  const Moves = Signal.make("Moves", { payload: schemaOf("message") })
  // The new fields as well, so that only what is stored is refused.
  const room = { room: 7, floor: 1 }
  const runtime = (options: { readonly servesReserve: boolean }) =>
    Runtime.layer({ orchestrations: [Stay], activities: options.servesReserve ? [Reserve] : [] }).pipe(Layer.provide([
      Reserve.toLayer(() => Effect.sync(() => (ran.push("reserved"), room))),
      Stay.toLayer(() =>
        Effect.gen(function*() {
          yield* Room.set(room)
          yield* Reserve.execute(room)
          yield* Effect.sleep("1 minute")
          yield* Moves.wait
          yield* Room.get
          return "stayed"
        })
      )
    ]))
  return { runtime, Stay, Moves, Reserve }
}

describe("Stored data that a Schema refuses", () => {
  const cases: ReadonlyArray<readonly [part: Part, problem: string]> = [
    ["payload", `payload of orchestration "Stay"`],
    ["input", `payload of activity "Reserve"`],
    ["result", `result of activity "Reserve"`],
    ["message", `payload of signal "Moves"`]
  ]
  for (const [part, problem] of cases) {
    it.effect(`blocks its instance, and the old build continues it: ${problem}`, () =>
      Effect.gen(function*() {
        const ran: Array<string> = []
        const old = build(ran)
        const first = yield* start(old.runtime({ servesReserve: part !== "input" }))
        yield* first.client.start(old.Stay, { instanceId: "s", payload: { room: 7 } })
        if (part === "message") yield* first.client.send(old.Moves, "s", { room: 8 })
        yield* TestClock.adjust("10 seconds")
        yield* first.stop

        const wrong = yield* start(build(ran, part).runtime({ servesReserve: true }))
        yield* TestClock.adjust("5 minutes")
        const block = yield* blockOf(wrong.client, "s")
        assert.strictEqual(block?.reason, "DataUnreadable")
        assert.include(block!.problem, problem)
        assert.include(block!.problem, "floor")
        yield* wrong.stop

        const back = yield* start(old.runtime({ servesReserve: true }))
        if (part !== "message") yield* back.client.send(old.Moves, "s", { room: 8 })
        // The pauses have grown to a minute, and the program sleeps for one.
        yield* untilEnded(back.client, "s", 80)
        assert.strictEqual(yield* back.client.wait(old.Stay, "s", { timeout: 0 }), "stayed")
        assert.deepStrictEqual(ran, ["reserved"])
      }).pipe(inMemory))
  }
})
