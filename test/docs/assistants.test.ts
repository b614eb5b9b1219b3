import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { existsSync, readdirSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as Docs from "../utils/docs.ts"

class OutOfStock extends Schema.TaggedError<OutOfStock>()("OutOfStock", { item: Schema.String }) {}

const Reserve = Activity.make("Reserve", {
  payload: { item: Schema.String },
  success: Schema.String,
  error: OutOfStock,
  retry: { times: 3, while: (outcome) => outcome._tag !== "OutOfStock" }
})
const Release = Activity.make("Release", { payload: Schema.String })
const Paid = Signal.make("Paid", { payload: { cents: Schema.Int } })
const Progress = KeyValue.make("progress", Schema.String)

const Order = Orchestration.make("Order", {
  payload: { item: Schema.String },
  success: Schema.Literals(["paid", "expired"]),
  error: OutOfStock
})

const OrderLive = Order.toLayer(Effect.fn(function*({ item }) {
  const reservation = yield* Reserve.execute({ item })
  yield* Progress.set("waiting for payment")
  const paid = yield* Paid.wait.pipe(Effect.timeoutOption("3 days"))
  if (Option.isSome(paid)) return "paid"
  yield* Release.execute(reservation)
  return "expired"
}))

const ReserveLive = Reserve.toLayer(Effect.fn(function*({ item }) {
  const { idempotencyKey } = yield* Activity.Call
  return item === "unicorn" ? yield* new OutOfStock({ item }) : `reservation ${idempotencyKey}`
}))
const ReleaseLive = Release.toLayer(() => Effect.void)

const RuntimeLive = Runtime.layer({ orchestrations: [Order], activities: [Reserve, Release] }).pipe(
  Layer.provide([OrderLive, ReserveLive, ReleaseLive])
)

const ClientLive = Client.layer.pipe(Layer.provideMerge(PrismaProvider.layerEnvironment()))

const buy = Effect.gen(function*() {
  const client = yield* Client.Client
  yield* client.start(Order, { instanceId: "order-17", payload: { item: "lamp" }, ifExists: "ignore" })
  yield* client.send(Paid, "order-17", { cents: 4_200 })
  return yield* client.wait(Order, "order-17", { timeout: "1 minute" })
})

const test = Effect.gen(function*() {
  const client = yield* Client.Client
  yield* client.start(Order, { instanceId: "o", payload: { item: "lamp" } })
  yield* TestRuntime.crash
  yield* TestRuntime.advance("3 days")
  return yield* client.wait(Order, "o")
}).pipe(Effect.provide(TestRuntime.layer(RuntimeLive)))

const page = Docs.read("docs/assistants.md")
const list = Docs.read("llms.txt")
const path = (file: string) => fileURLToPath(new URL(`../../${file}`, import.meta.url))

describe("docs/assistants.md", () => {
  it("its examples are those tested here", () => {
    const here = Docs.withoutIndentation(Docs.read("test/docs/assistants.test.ts"))
    const examples = Docs.blocks(page, "ts")
    assert.lengthOf(examples, 3)
    for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  })

  it.effect("its program is paid for, expires, and fails with its error", () =>
    Effect.gen(function*() {
      assert.strictEqual(yield* test, "expired")
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        assert.strictEqual(yield* buy, "paid")
        const error = yield* Effect.flip(client.execute(Order, { instanceId: "u", payload: { item: "unicorn" } }))
        assert.instanceOf(error, OutOfStock)
      }).pipe(Effect.provide(TestRuntime.layer(RuntimeLive)))
      assert.isTrue(Layer.isLayer(ClientLive))
    }))

  it("its code names what the package exports", () => {
    for (const [, module, name] of page.matchAll(/`(Activity|Orchestration|Runtime|Client|TestRuntime)\.(\w+)/g)) {
      const exported: object = { Activity, Orchestration, Runtime, Client, TestRuntime }[module as "Activity"]
      assert.property(exported, name!, `${module}.${name}`)
    }
  })
})

describe("llms.txt", () => {
  it("lists every guide, by paths that exist and are in the package", () => {
    const linked = [...list.matchAll(/\]\(([^)]+)\)/g)].map(([, file]) => file!)
    for (const file of linked) assert.isTrue(existsSync(path(file)), file)
    const guides = readdirSync(path("docs")).filter((file) => file.endsWith(".md")).map((file) => `docs/${file}`)
    assert.sameMembers(linked, guides)
    const { files } = JSON.parse(Docs.read("package.json"))
    assert.includeMembers(files, ["docs", "llms.txt"])
  })
})
