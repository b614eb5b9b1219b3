import { NodeHttpServer } from "@effect/platform-node"
import { assert, it } from "@effect/vitest"
import { Client, Orchestration, Runtime } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Completion, CompletionApi, External } from "duroxide-prisma/recipes/completions"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as HttpApi from "effect/http-api/HttpApi"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServer from "effect/http/HttpServer"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { createServer } from "node:http"
import { shortLocks } from "../programs/shortLocks.ts"
import * as LocalProcess from "../utils/localProcess.ts"
import * as PgServer from "../utils/PgServer.ts"

class Refused extends Schema.TaggedError<Refused>()("Refused", { by: Schema.String }) {}

const Approve = External.make("Approve", {
  payload: Schema.String,
  success: Schema.Struct({ by: Schema.String }),
  error: Refused,
  expiry: "1 hour"
})

const Spend = Orchestration.make("Spend", {
  payload: Schema.String,
  success: Schema.String,
  error: Schema.Union([Refused, Completion.CompletionExpired])
})

const keys = Completion.layerKeys([Redacted.make("k".repeat(32))])

const Api = HttpApi.make("expenses").add(CompletionApi.group.prefix("/completions"))

/** What a dead worker held is taken over within a second. */
const quickly = { runtime: shortLocks("1 second") }

/** A process without a runtime, on a socket. */
const serve = (url: string) =>
  Effect.gen(function*() {
    const services = yield* Layer.build(
      HttpRouter.serve(
        HttpApiBuilder.layer(Api).pipe(
          Layer.provide(CompletionApi.layer(Api)),
          Layer.provide(Completion.layer({ activities: [Approve] }))
        ),
        { disableListenLog: true, disableLogger: true }
      ).pipe(
        Layer.provide([keys, PrismaProvider.layer({ url, migrate: "verify" })]),
        Layer.provideMerge(NodeHttpServer.layer(createServer, { port: 0, host: "127.0.0.1" }))
      )
    )
    const { address } = Context.get(services, HttpServer.HttpServer)
    const port = "port" in address ? address.port : 0
    return (token: string | undefined, path = "status", body?: unknown, bearer?: string) =>
      Effect.promise(async () => {
        const response = await fetch(
          `http://127.0.0.1:${port}/completions/${path}${token === undefined ? "" : `?token=${token}`}`,
          {
            headers: {
              "content-type": "application/json",
              ...(bearer !== undefined && { authorization: `Bearer ${bearer}` })
            },
            ...(body !== undefined && { method: "POST", body: JSON.stringify(body) })
          }
        )
        const text = await response.text()
        return [response.status, text === "" ? null : JSON.parse(text)] as const
      })
  })

it.live("over HTTP: completed, repeated, refused; the worker that asked has died meanwhile", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    const sent = new Map<string, Deferred.Deferred<string>>()
    for (const what of ["a laptop", "a chair"]) sent.set(what, yield* Deferred.make<string>())
    const worker = Runtime.layer({ orchestrations: [Spend], activities: [Approve] }).pipe(
      Layer.provide([
        Spend.toLayer((what) => Effect.map(Approve.execute(what), ({ by }) => by)),
        Approve.toLayer((what, token) => Deferred.succeed(sent.get(what)!, token))
      ]),
      Layer.provide(keys)
    )
    const store = yield* Layer.build(Layer.provideMerge(
      Client.layer,
      PrismaProvider.layer({ url, migrate: "verify" })
    ))
    const { kill } = yield* Effect.provide(LocalProcess.start(worker, quickly), store)
    const client = Context.get(store, Client.Client)
    const ask = yield* serve(url)

    yield* client.start(Spend, { instanceId: "one", payload: "a laptop" })
    const token = yield* Deferred.await(sent.get("a laptop")!)
    const [status, body] = yield* ask(token)
    assert.deepStrictEqual([status, body.activityName, body.state], [200, "Approve", "open"])
    assert.deepStrictEqual(yield* ask(undefined, "status", undefined, token), [status, body])
    assert.strictEqual((yield* ask(undefined, "status"))[0], 401)
    const [beaten, { expiresAtMs }] = yield* ask(token, "heartbeat", { details: "asked the manager" })
    assert.deepStrictEqual([beaten, expiresAtMs > body.expiresAtMs], [200, true])

    yield* client.start(Spend, { instanceId: "two", payload: "a chair" })
    const other = yield* Deferred.await(sent.get("a chair")!)
    yield* kill

    // No worker: it is stored, and counts later.
    assert.deepStrictEqual(yield* ask(token, "complete", { result: { by: "Ada" } }), [200, { state: "stored" }])
    yield* Effect.provide(LocalProcess.start(worker, quickly), store)
    assert.strictEqual(yield* client.wait(Spend, "one"), "Ada")
    assert.deepStrictEqual(yield* ask(token, "complete", { result: { by: "Ada" } }), [200, { state: "taken" }])
    assert.strictEqual((yield* ask(token, "complete", { result: { by: "Ben" } }))[0], 409)
    assert.strictEqual((yield* ask(token))[1].state, "completed")

    for (
      const [given, path, body, expected] of [
        [other, "complete", { result: { by: 1 } }, 400],
        [`${other}x`, "complete", { result: { by: "Ada" } }, 401],
        [other, "nothing", {}, 404]
      ] as const
    ) {
      assert.strictEqual((yield* ask(given, path, body))[0], expected)
    }
    assert.deepStrictEqual(
      yield* ask(other, "fail", { error: { _tag: "Refused", by: "Ada" } }),
      [200, { state: "taken" }]
    )
    assert.deepStrictEqual(yield* Effect.flip(client.wait(Spend, "two")), new Refused({ by: "Ada" }))

    yield* sql("DELETE FROM history")
    assert.strictEqual((yield* ask(other, "complete", { result: { by: "Ada" } }))[0], 410)
  }).pipe(Effect.scoped, Effect.provide([PgServer.layer, Logger.layer([])])))
