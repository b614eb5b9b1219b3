import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Admin, AdminDriver, FromDriver, MemoryDriver, Notifier, Pause, ProviderDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const { PauseTarget } = Pause

const inMemory = Effect.provide([
  FromDriver.layerAdmin.pipe(Layer.provideMerge(MemoryDriver.layer)),
  Logger.layer([])
])

const Book = Orchestration.make("Book", { success: Schema.String })
const Newer = Orchestration.make("Book", { version: "2.0.0", success: Schema.String })
const Other = Orchestration.make("Other", { success: Schema.String })
const Charge = Activity.make("Charge", { payload: Schema.String, success: Schema.String })
const Refund = Activity.make("Refund", { payload: Schema.String, success: Schema.String })
const Notes = Signal.make("Notes", { payload: Schema.String })

/** What the world has seen. */
const makeWorld = () => ({ charged: new Array<string>(), turns: new Array<string>() })
type World = ReturnType<typeof makeWorld>

const handlers = (world: World) =>
  [
    Charge.toLayer((what) => Effect.as(Effect.sleep("1 minute"), (world.charged.push(what), what))),
    Refund.toLayer((what) => Effect.sync(() => (world.charged.push(`refund ${what}`), what)))
  ] as const

/** Takes three notes, the last one after a timer of ten minutes. */
const book = (world: World) => () =>
  Effect.gen(function*() {
    world.turns.push("book")
    const first = yield* Notes.wait
    const second = yield* Notes.wait
    yield* Effect.sleep("10 minutes")
    return [first, second, yield* Notes.wait].join(" ")
  })

const runtime = (world: World) =>
  Runtime.layer({ orchestrations: [Book, Newer, Other], activities: [Charge, Refund] }).pipe(Layer.provide([
    ...handlers(world),
    Book.toLayer(book(world)),
    Newer.toLayer(() => Effect.succeed("newer")),
    Other.toLayer(() => Charge.execute("other"))
  ]))

const start = (world: World, options: { readonly tags?: ReadonlyArray<string> } = {}) =>
  LocalProcess.start(runtime(world), {
    runtime: options.tags === undefined ? {} : { tags: { _tag: "DefaultAnd", tags: options.tags } },
    provider: { longPolling: { aggressivePollInterval: "5 seconds" } }
  })

const statusOf = (client: Client.Client["Service"], instanceId: string) =>
  Effect.map(
    client.status(instanceId),
    (status) => status._tag === "Running" ? Option.getOrUndefined(status.pause)?.target._tag ?? "Running" : status._tag
  )

/** How soon processes know: they poll here, and have no hints. */
const soon = TestClock.adjust("6 seconds")

describe("An instance", () => {
  it.effect("that is paused takes no turn, keeps the order of its messages, and its timers fire after", () =>
    Effect.gen(function*() {
      const world = makeWorld()
      const admin = yield* Admin.Admin
      const one = yield* start(world)
      const two = yield* start(world)
      yield* one.client.start(Book, { instanceId: "a" })
      yield* one.client.start(Book, { instanceId: "b" })
      yield* soon
      yield* admin.pause(PauseTarget.Instance({ instanceId: "a" }), { reason: "look at it" })
      for (const [note, { client }] of [["one", one], ["two", two], ["three", one]] as const) {
        yield* client.send(Notes, "a", note)
        yield* client.send(Notes, "b", note)
      }
      yield* TestClock.adjust("30 minutes")
      assert.strictEqual(yield* two.client.wait(Book, "b", { timeout: 0 }), "one two three")
      const status = yield* two.client.status("a")
      assert(status._tag === "Running" && Option.isSome(status.pause))
      assert.strictEqual(status.pause.value.reason, "look at it")
      // Neither a new process nor one that ends changes anything.
      yield* one.kill
      const three = yield* start(world)
      yield* TestClock.adjust("10 minutes")
      assert.strictEqual(yield* statusOf(three.client, "a"), "Instance")
      assert.isTrue(yield* admin.resume(PauseTarget.Instance({ instanceId: "a" })))
      assert.strictEqual(yield* statusOf(three.client, "a"), "Running")
      yield* soon
      yield* TestClock.adjust("10 minutes")
      assert.strictEqual(yield* three.client.wait(Book, "a", { timeout: 0 }), "one two three")
    }).pipe(inMemory))

  it.effect("whose timer was due meanwhile continues at once", () =>
    Effect.gen(function*() {
      const world = makeWorld()
      const admin = yield* Admin.Admin
      const { client } = yield* start(world)
      yield* client.start(Book, { instanceId: "a" })
      for (const note of ["one", "two", "three"]) yield* client.send(Notes, "a", note)
      yield* soon
      yield* admin.pause(PauseTarget.Instance({ instanceId: "a" }))
      yield* TestClock.adjust("1 hour")
      assert.strictEqual(yield* statusOf(client, "a"), "Instance")
      yield* admin.resume(PauseTarget.Instance({ instanceId: "a" }))
      yield* soon
      assert.strictEqual(yield* client.wait(Book, "a", { timeout: 0 }), "one two three")
    }).pipe(inMemory))

  it.effect("lets its activities end, and takes no optimistic turn", () =>
    Effect.gen(function*() {
      const world = makeWorld()
      const admin = yield* Admin.Admin
      const { client } = yield* start(world)
      yield* client.start(Other, { instanceId: "a" })
      yield* soon
      assert.deepStrictEqual(world.charged, ["other"])
      yield* admin.pause(PauseTarget.Instance({ instanceId: "a" }))
      yield* TestClock.adjust("1 hour")
      assert.strictEqual(yield* statusOf(client, "a"), "Instance")
      yield* admin.resume(PauseTarget.Instance({ instanceId: "a" }))
      yield* soon
      assert.strictEqual(yield* client.wait(Other, "a", { timeout: 0 }), "other")
      assert.deepStrictEqual(world.charged, ["other"])
    }).pipe(inMemory))
})

describe("A definition", () => {
  it.effect("that is paused accepts starts, which wait for the resume in all processes", () =>
    Effect.gen(function*() {
      const world = makeWorld()
      const admin = yield* Admin.Admin
      const processes = [yield* start(world), yield* start(world)]
      const [{ client }] = processes as [typeof processes[0]]
      yield* soon
      yield* admin.pause(PauseTarget.Orchestration({ name: "Book" }))
      yield* Effect.yieldNow
      yield* client.start(Book, { instanceId: "a" })
      yield* client.start(Newer, { instanceId: "newer" })
      yield* client.start(Other, { instanceId: "other" })
      processes.push(yield* start(world))
      yield* TestClock.adjust("10 minutes")
      assert.deepStrictEqual(world.turns, [])
      assert.strictEqual(yield* statusOf(client, "a"), "Orchestration")
      assert.strictEqual(yield* statusOf(client, "newer"), "Orchestration")
      assert.strictEqual(yield* statusOf(client, "other"), "Completed")
      yield* admin.resume(PauseTarget.Orchestration({ name: "Book" }))
      yield* soon
      assert.strictEqual(world.turns.length > 0, true)
      assert.strictEqual(yield* client.wait(Newer, "newer", { timeout: 0 }), "newer")
      for (const note of ["one", "two", "three"]) yield* client.send(Notes, "a", note)
      yield* TestClock.adjust("11 minutes")
      assert.strictEqual(yield* client.wait(Book, "a", { timeout: 0 }), "one two three")
    }).pipe(inMemory))

  it.effect("may be paused in one version", () =>
    Effect.gen(function*() {
      const world = makeWorld()
      const admin = yield* Admin.Admin
      const { client } = yield* start(world)
      yield* soon
      yield* admin.pause(PauseTarget.Orchestration({ name: "Book", version: "1.0.0" }))
      yield* Effect.yieldNow
      yield* client.start(Book, { instanceId: "a" })
      yield* client.start(Newer, { instanceId: "newer" })
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(world.turns, [])
      assert.strictEqual(yield* statusOf(client, "newer"), "Completed")
      // Its only newest version is paused as well: nothing is left to claim.
      yield* admin.pause(PauseTarget.Orchestration({ name: "Book", version: "2.0.0" }))
      yield* Effect.yieldNow
      yield* client.start(Newer, { instanceId: "another" })
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(yield* statusOf(client, "another"), "Orchestration")
      yield* admin.resume(PauseTarget.Orchestration({ name: "Book", version: "1.0.0" }))
      yield* soon
      assert.lengthOf(world.turns, 1)
      assert.strictEqual(yield* statusOf(client, "another"), "Orchestration")
    }).pipe(inMemory))
})

describe("Activities", () => {
  const Both = Orchestration.make("Both", { success: Schema.String })
  const both = (world: World, tag?: string) =>
    Runtime.layer({ orchestrations: [Both], activities: [Charge, Refund] }).pipe(Layer.provide([
      ...handlers(world),
      Both.toLayer(() =>
        Effect.gen(function*() {
          const charged = yield* (tag === undefined ? Charge : Charge.with({ tag })).execute("it")
          return `${charged}, ${yield* Refund.execute(charged)}`
        })
      )
    ]))

  it.effect("of a paused name wait, and one that runs is not interrupted", () =>
    Effect.gen(function*() {
      const world = makeWorld()
      const admin = yield* Admin.Admin
      const { client } = yield* LocalProcess.start(both(world))
      yield* client.start(Both, { instanceId: "a" })
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(world.charged, ["it"])
      yield* admin.pause(PauseTarget.Activity({ name: "Charge" }))
      yield* client.start(Both, { instanceId: "b" })
      yield* TestClock.adjust("10 minutes")
      assert.deepStrictEqual(world.charged, ["it", "refund it"])
      assert.strictEqual(yield* client.wait(Both, "a", { timeout: 0 }), "it, it")
      assert.strictEqual(yield* statusOf(client, "b"), "Running")
      yield* admin.resume(PauseTarget.Activity({ name: "Charge" }))
      yield* TestClock.adjust("2 minutes")
      assert.strictEqual(yield* client.wait(Both, "b", { timeout: 0 }), "it, it")
    }).pipe(inMemory))

  for (const tags of ["DefaultAnd", "Any"] as const) {
    it.effect(`with a paused tag wait, in a process that serves ${tags}`, () =>
      Effect.gen(function*() {
        const world = makeWorld()
        const admin = yield* Admin.Admin
        const { client } = yield* LocalProcess.start(both(world, "gpu"), {
          runtime: { tags: tags === "Any" ? { _tag: tags } : { _tag: tags, tags: ["gpu"] } }
        })
        yield* TestClock.adjust("1 second")
        yield* admin.pause(PauseTarget.Tag({ tag: "gpu" }))
        yield* client.start(Both, { instanceId: "a" })
        yield* TestClock.adjust("10 minutes")
        assert.deepStrictEqual(world.charged, [])
        yield* admin.resume(PauseTarget.Tag({ tag: "gpu" }))
        yield* TestClock.adjust("3 minutes")
        assert.strictEqual(yield* client.wait(Both, "a", { timeout: 0 }), "it, it")
        assert.deepStrictEqual(world.charged, ["it", "refund it"])
      }).pipe(inMemory))
  }
})

describe("An Admin with a notifier", () => {
  it.effect("announces what it pauses and resumes", () =>
    Effect.gen(function*() {
      const bus = Notifier.makeInProcess()
      const heard: Array<string> = []
      yield* bus.connect("other").listen({
        connected: () => {},
        disconnected: () => {},
        receive: ({ hint }) => void heard.push(hint._tag)
      })
      const admin = FromDriver.makeAdmin(yield* AdminDriver.AdminDriver, bus.connect("admin"))
      yield* admin.pause(PauseTarget.Everything())
      assert.deepStrictEqual(heard, ["Paused"])
      assert.isTrue(yield* admin.resume(PauseTarget.Everything()))
      assert.isFalse(yield* admin.resume(PauseTarget.Everything()))
      assert.deepStrictEqual(heard, ["Paused", "Paused"])
    }).pipe(inMemory))
})

describe("Everything", () => {
  it.effect("stops claims, also of processes that start meanwhile, and continues where it was", () =>
    Effect.gen(function*() {
      const world = makeWorld()
      const admin = yield* Admin.Admin
      const driver = yield* ProviderDriver.ProviderDriver
      const claims: Array<string> = []
      const counting = LocalProcess.intercept(driver, (call, operation) => {
        if (operation.startsWith("fetch")) claims.push(operation)
        return call
      })
      const counted = Effect.provideService(ProviderDriver.ProviderDriver, counting)
      const { client } = yield* counted(start(world))
      yield* client.start(Other, { instanceId: "before" })
      yield* soon
      yield* admin.pause(PauseTarget.Everything(), { reason: "incident 7" })
      yield* soon
      claims.length = 0
      yield* counted(start(world))
      yield* client.start(Other, { instanceId: "after" })
      yield* TestClock.adjust("30 minutes")
      assert.deepStrictEqual(claims, [])
      // What ran has ended, and its outcome is stored.
      assert.deepStrictEqual(world.charged, ["other"])
      assert.deepStrictEqual(
        (yield* admin.getPauses).targets.map(({ reason, target }) => [target._tag, reason]),
        [["Everything", "incident 7"]]
      )
      assert.strictEqual(yield* statusOf(client, "after"), "Everything")
      yield* admin.resume(PauseTarget.Everything())
      yield* TestClock.adjust("2 minutes")
      assert.strictEqual(yield* client.wait(Other, "before", { timeout: 0 }), "other")
      assert.strictEqual(yield* client.wait(Other, "after", { timeout: 0 }), "other")
      assert.deepStrictEqual(world.charged, ["other", "other"])
    }).pipe(inMemory))
})
