import { assert, it } from "@effect/vitest"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Trigger } from "duroxide-prisma/recipes/triggers"
import { Task, Tasks } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { Readable } from "node:stream"
import { keyOf, sign } from "../../src/recipes/internal/signature.ts"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

Object.assign(process.env, {
  PAYMENTS_SECRET: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
})

const Book = Task.make("Book", { payload: Schema.Struct({ amount: Schema.Int }), success: Schema.Void })

const Payments = Trigger.webhook("payments", {
  task: Book,
  secret: Redacted.make(process.env.PAYMENTS_SECRET!),
  payload: ({ body }) => Schema.decodeUnknownSync(Book.payload)(body)
})

const gateway = Effect.gen(function*() {
  const handle = yield* Trigger.handler({ webhooks: [Payments] })
  const server = createServer(async (incoming, outgoing) => {
    try {
      const answer = await handle(
        new Request(new URL(incoming.url ?? "/", "http://localhost"), {
          method: incoming.method ?? "GET",
          headers: Object.entries(incoming.headers).map(([name, value]) => [name, String(value)]),
          // The global class, for which the library DOM has other types than `node:stream`.
          ...(incoming.method === "POST" ? { body: Readable.toWeb(incoming) as ReadableStream, duplex: "half" } : {})
        })
      )
      outgoing.setHeaders(answer.headers).writeHead(answer.status).end(await answer.text())
    } catch {
      // The Web API refuses the request, such as one with the path "//".
      outgoing.writeHead(400).end()
    }
  })
  yield* Effect.acquireRelease(
    Effect.sync(() => server.listen(Number(process.env.PORT ?? 8080))),
    () => Effect.sync(() => server.close())
  )
})

const GatewayLive = Layer.effectDiscard(gateway).pipe(
  Layer.provide(Tasks.layer),
  Layer.provide(PrismaProvider.layerDatabase({ url: process.env.DATABASE_URL! }))
)

it("docs/recipes.md, Triggers: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/triggers.test.ts"))
  const examples = Docs.blocks(Docs.section("docs/recipes.md", "Triggers"), "ts")
  assert.lengthOf(examples, 2)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  assert.isTrue(Layer.isLayer(GatewayLive))
})

it.live("docs/recipes.md, Triggers: its server serves the endpoint", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    const port = yield* Effect.promise(() =>
      new Promise<number>((resolve) => {
        const probe = createServer().listen(0, () => {
          const { port } = probe.address() as AddressInfo
          probe.close(() => resolve(port))
        })
      })
    )
    process.env.PORT = String(port)
    yield* gateway.pipe(
      Effect.provide(
        yield* Layer.build(Layer.provideMerge(Tasks.layer, PrismaProvider.layerDatabase({ url, migrate: "none" })))
      )
    )
    const post = (path: string, init: RequestInit) =>
      Effect.promise(async () =>
        (await fetch(`http://localhost:${port}/triggers/${path}`, { method: "POST", ...init })).status
      )
    const id = "e-1"
    const timestamp = Math.floor(Date.now() / 1000)
    const body = "{\"amount\":5}"
    const key = keyOf(Redacted.make(process.env.PAYMENTS_SECRET!))!
    const headers = {
      "webhook-id": id,
      "webhook-timestamp": String(timestamp),
      "webhook-signature": sign(key, { id, timestamp, body })
    }
    assert.strictEqual(yield* post("webhooks/payments", { headers, body }), 200)
    assert.strictEqual(yield* post("webhooks/payments", { headers, body: "{\"amount\":6}" }), 401)
    const invalidUrl = yield* Effect.promise(async () => (await fetch(`http://localhost:${port}//`)).status)
    assert.strictEqual(invalidUrl, 400)
    assert.deepStrictEqual(
      yield* sql("SELECT key FROM queue_tasks WHERE name = 'Book'"),
      [{ key: "webhook/payments/e-1" }]
    )
  }).pipe(Effect.scoped))
