import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Task, Tasks } from "duroxide-prisma/tasks"
import { recordHistory, replayHistory, TestRuntime } from "duroxide-prisma/testing"
import { TestTasks } from "duroxide-prisma/testing/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Docs from "../utils/docs.ts"

const Charge = Activity.make("Charge", { payload: Schema.Int, success: Schema.String })
const Ship = Activity.make("Ship", { payload: Schema.String, success: Schema.String })
const Approved = Signal.make("Approved", { payload: Schema.Boolean })

const Fulfil = Orchestration.make("Fulfil", { payload: Schema.Int, success: Schema.String })

const FulfilLive = Fulfil.toLayer(Effect.fn(function*(cents) {
  const answer = yield* Effect.timeoutOption(Approved.wait, "7 days")
  if (!Option.getOrElse(answer, () => false)) return "refused"
  const receipt = yield* Charge.execute(cents)
  yield* Effect.sleep("3 days")
  return yield* Ship.execute(receipt)
}))

const charges: Array<string> = []

const ChargeMock = Charge.toLayer(Effect.fn(function*(cents) {
  const { idempotencyKey } = yield* Activity.Call
  charges.push(idempotencyKey)
  yield* Effect.sleep("1 minute") // virtual time, like all there is
  return `receipt for ${cents}`
}))

const ShipMock = Ship.toLayer((receipt) => Effect.succeed(`shipped with ${receipt}`))

const RuntimeTest = Runtime.layer({ orchestrations: [Fulfil], activities: [Charge, Ship] }).pipe(
  Layer.provide([FulfilLive, ChargeMock, ShipMock])
)

it("docs/testing.md: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/testing.test.ts"))
  const examples = Docs.blocks(Docs.read("docs/testing.md"), "ts")
  assert.lengthOf(examples, 10)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
})

it.effect("Fulfil: ships three days after it was approved", () =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    yield* client.start(Fulfil, { instanceId: "order-1", payload: 4200 })
    yield* TestRuntime.advance("2 days")
    yield* client.send(Approved, "order-1", true)
    assert.strictEqual(yield* client.wait(Fulfil, "order-1"), "shipped with receipt for 4200")
  }).pipe(Effect.provide(TestRuntime.layer(RuntimeTest))))

it.effect("Fulfil: is refused without an answer", () =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    const parcel = yield* client.execute(Fulfil, { instanceId: "order-1", payload: 4200 })
    assert.strictEqual(parcel, "refused") // seven days later, a few milliseconds
  }).pipe(Effect.provide(TestRuntime.layer(RuntimeTest))))

it.effect("Fulfil: charges twice with one key when the process dies in between", () =>
  Effect.gen(function*() {
    charges.splice(0)
    const client = yield* Client.Client
    yield* client.start(Fulfil, { instanceId: "order-1", payload: 4200 })
    yield* client.send(Approved, "order-1", true)
    yield* TestRuntime.advance("30 seconds") // the charge is under way
    yield* TestRuntime.crash
    yield* client.wait(Fulfil, "order-1")
    assert.lengthOf(charges, 2)
    assert.strictEqual(charges[0], charges[1])
  }).pipe(Effect.provide(TestRuntime.layer(RuntimeTest))))

const Resize = Task.make("Resize", { payload: { image: Schema.String }, success: Schema.String })

const Publish = Orchestration.make("Publish", { payload: Schema.String, success: Schema.String })

const PublishLive = Publish.toLayer((image) => Resize.execute({ image }))

/** A handler that commits in a transaction of its own. */
const resizeIn = Effect.fn(function*(connection: never, { image }: { readonly image: string }) {
  const attempt = yield* Resize.attempt
  yield* attempt.commit(connection, `small ${image}`)
})

const tx = {} as never

const ResizeMock = Resize.toLayer(Effect.fn(function*({ image }) {
  const { attempt } = yield* Task.Attempt
  if (attempt === 1) return yield* Effect.die(new Error("out of memory"))
  return `small ${image}`
}))

const TasksTest = Runtime.layer({ orchestrations: [Publish], activities: [...Tasks.activities] }).pipe(
  Layer.provideMerge(TestTasks.layer({ tasks: [Resize] })),
  Layer.provide([PublishLive, ResizeMock])
)

it.effect("Publish: survives a worker that dies", () =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    assert.strictEqual(yield* client.execute(Publish, { instanceId: "p", payload: "cat.png" }), "small cat.png")
    const tasks = yield* Tasks.Tasks
    const id = yield* tasks.create(Resize, { payload: { image: "dog.png" }, delay: "1 day" })
    assert.strictEqual(yield* tasks.wait(Resize, id), "small dog.png") // a day later
  }).pipe(Effect.provide(TestRuntime.layer(TasksTest))))

it.effect("Resize: commits what it returns", () =>
  Effect.gen(function*() {
    const { commits, service } = TestTasks.attempt({ taskName: "Resize", attempt: 2 })
    yield* Effect.provideService(resizeIn(tx, { image: "cat.png" }), Task.Attempt, service)
    assert.deepStrictEqual(commits, ["small cat.png"])
  }))

it.effect("recording", () =>
  Effect.acquireUseRelease(
    Effect.sync(() => join(mkdtempSync(join(tmpdir(), "histories-")), "order-1.json")),
    (path) =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Fulfil, { instanceId: "order-1", payload: 4200 })
        yield* client.send(Approved, "order-1", true)
        yield* TestRuntime.advance("1 day")
        yield* record(path)
        assert.strictEqual((yield* check(path)).executions[0]?.status, "Running")
        yield* mismatch(path)
      }).pipe(Effect.provide(TestRuntime.layer(RuntimeTest))),
    (path) => Effect.sync(() => rmSync(join(path, ".."), { recursive: true }))
  ))

const record = (path: string) => Effect.map(recordHistory("order-1"), (history) => writeFileSync(path, history))

const check = (path: string) => replayHistory(Fulfil, readFileSync(path, "utf8")).pipe(Effect.provide(FulfilLive))

/** What the page shows when the charge is changed. */
const mismatch = (path: string) =>
  Effect.gen(function*() {
    const Changed = Fulfil.toLayer(Effect.fn(function*(cents) {
      yield* Effect.timeoutOption(Approved.wait, "7 days")
      const receipt = yield* Charge.execute(cents + 100)
      yield* Effect.sleep("3 days")
      return yield* Ship.execute(receipt)
    }))
    const error = yield* Effect.flip(
      replayHistory(Fulfil, readFileSync(path, "utf8")).pipe(Effect.provide(Changed))
    )
    const [shown] = Docs.blocks(Docs.read("docs/testing.md"), "text")
    assert.strictEqual(error.message, shown?.code)
  })
