import { assert, it } from "@effect/vitest"
import { Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Migrator, PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const serverOn = (url: string) =>
  ManagedRuntime.make(Client.layer.pipe(Layer.provide(PrismaProvider.layer({ url, migrate: "verify" }))))

class SoldOut extends Schema.TaggedError<SoldOut>()("SoldOut", { item: Schema.String }) {}

const Order = Schema.Struct({ id: Schema.String, item: Schema.String })

const Fulfil = Orchestration.make("Fulfil", {
  payload: Order,
  success: Schema.Struct({ parcel: Schema.String }),
  error: SoldOut,
  instanceId: ({ id }) => `order-${id}`
})

const place = Effect.fn(function*(body: unknown) {
  const client = yield* Client.Client
  const order = yield* Schema.decodeUnknownEffect(Order)(body)
  yield* client.start(Fulfil, { payload: order, ifExists: "ignore" })
  return Response.json({ status: `/orders/${order.id}` }, { status: 202 })
})

const show = Effect.fn(function*(id: string, timeout: number) {
  const client = yield* Client.Client
  const instanceId = `order-${id}`
  const status = yield* client.status(instanceId)
  if (status._tag === "NotFound") return Response.json({ state: "unknown" }, { status: 404 })
  return yield* client.wait(Fulfil, instanceId, { timeout }).pipe(
    Effect.map((receipt) => Response.json({ state: "done", receipt })),
    Effect.catchTags({
      SoldOut: ({ item }) => Effect.succeed(Response.json({ state: "sold out", item }, { status: 409 })),
      InstanceCancelled: ({ reason }) => Effect.succeed(Response.json({ state: "cancelled", reason }, { status: 410 })),
      InstanceFailed: (failed) =>
        // The message may name internals: it is for the log.
        Effect.as(Effect.logError(failed.message), Response.json({ state: "failed" }, { status: 500 })),
      WaitTimeout: () =>
        Effect.map(
          client.status(instanceId),
          (now) =>
            Response.json({
              state: "running",
              doing: now._tag === "Running" ? Option.getOrNull(now.customStatus) : null
            }, { status: 202 })
        )
    })
  )
})

const route = (request: Request) =>
  Effect.gen(function*() {
    const [, orders, id] = new URL(request.url).pathname.split("/")
    if (orders !== "orders") return Response.json({ state: "unknown" }, { status: 404 })
    if (request.method === "POST") {
      const body = yield* Effect.tryPromise(() => request.json()).pipe(Effect.orElseSucceed(() => undefined))
      return yield* place(body)
    }
    return yield* show(id ?? "", 2_000)
  }).pipe(
    Effect.catchTags({
      SchemaError: () => Effect.succeed(Response.json({ problem: "not an order" }, { status: 400 })),
      PayloadTooLarge: () => Effect.succeed(Response.json({ problem: "too large" }, { status: 413 })),
      ProviderError: (error) =>
        error.reason._tag === "InvalidInput"
          ? Effect.succeed(Response.json({ problem: "not an order" }, { status: 400 }))
          : Effect.as(Effect.logError(error.message), Response.json({ problem: "try again" }, { status: 503 }))
    })
  )

const handlerOf = (server: ReturnType<typeof serverOn>) => (request: Request) =>
  server.runPromise(route(request), { signal: request.signal })

const Packed = Signal.make("Packed")

const worker = Runtime.layer({ orchestrations: [Fulfil] }).pipe(
  Layer.provide(Fulfil.toLayer(Effect.fn(function*({ id, item }) {
    if (item === "air") return yield* new SoldOut({ item })
    if (item === "bomb") return yield* Effect.die(new Error("secret"))
    yield* Orchestration.setCustomStatus("packing")
    yield* Packed.wait
    return { parcel: `parcel ${id}` }
  })))
)

it("docs/http.md, In an HTTP server: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/http.test.ts"))
  const examples = Docs.blocks(Docs.section("docs/http.md", "In an HTTP server"), "ts")
  assert.lengthOf(examples, 6)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
})

it.live("docs/http.md, In an HTTP server: a server without a runtime answers with the state of what a worker runs", () =>
  Effect.gen(function*() {
    const { url } = yield* PgServer.emptyDatabase
    yield* Migrator.migrate({ url })
    const server = yield* Effect.acquireRelease(
      Effect.sync(() => serverOn(url)),
      (server) => Effect.promise(() => server.dispose())
    )
    yield* Layer.build(Layer.provide(worker, PrismaProvider.layer({ url })))
    const handle = handlerOf(server)
    const answer = (response: Promise<Response>) =>
      Effect.promise(async () => {
        const { status } = await response
        return [status, await (await response).json()]
      })
    const get = (path: string) => answer(handle(new Request(`http://shop${path}`)))
    const post = (order: unknown) =>
      answer(handle(new Request("http://shop/orders", { method: "POST", body: JSON.stringify(order) })))
    const ended = (id: string) =>
      Effect.exit(Effect.promise(() =>
        server.runPromise(
          Effect.flatMap(Client.Client, (client) => client.wait(Fulfil, `order-${id}`))
        )
      ))

    assert.deepStrictEqual(yield* get("/orders/1"), [404, { state: "unknown" }])
    assert.deepStrictEqual(yield* post({ id: 1 }), [400, { problem: "not an order" }])
    assert.deepStrictEqual(yield* post({ id: "\0", item: "tea" }), [400, { problem: "not an order" }])
    const large = { id: "4", item: "x".repeat(5_000_000) }
    assert.deepStrictEqual(yield* post(large), [413, { problem: "too large" }])
    for (let i = 0; i < 2; i++) {
      assert.deepStrictEqual(yield* post({ id: "1", item: "tea" }), [202, { status: "/orders/1" }])
    }
    const running = yield* Effect.repeat(get("/orders/1"), {
      until: ([, body]) => JSON.stringify(body).includes("packing")
    })
    assert.deepStrictEqual(running, [202, { state: "running", doing: "packing" }])
    yield* Effect.promise(() =>
      server.runPromise(
        Effect.flatMap(Client.Client, (client) => client.send(Packed, "order-1"))
      )
    )
    yield* ended("1")
    assert.deepStrictEqual(yield* get("/orders/1"), [200, { state: "done", receipt: { parcel: "parcel 1" } }])
    const now = yield* answer(server.runPromise(show("1", 0)))
    assert.deepStrictEqual(now, [200, { state: "done", receipt: { parcel: "parcel 1" } }])
    for (
      const [id, item, expected] of [
        ["2", "air", [409, { state: "sold out", item: "air" }]],
        ["3", "bomb", [500, { state: "failed" }]]
      ] as const
    ) {
      yield* post({ id, item })
      yield* ended(id)
      assert.deepStrictEqual<unknown>(yield* get(`/orders/${id}`), expected)
    }
  }).pipe(Effect.scoped, Effect.provide([PgServer.layer, Logger.layer([])])))
