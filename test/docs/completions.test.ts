import { assert, it } from "@effect/vitest"
import { Client, Orchestration, Runtime } from "duroxide-prisma"
import { Completion, CompletionApi, External } from "duroxide-prisma/recipes/completions"
import { TestRuntime } from "duroxide-prisma/testing"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as HttpApi from "effect/http-api/HttpApi"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as HttpEffect from "effect/http/HttpEffect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServer from "effect/http/HttpServer"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Docs from "../utils/docs.ts"

const Expense = Schema.Struct({ purpose: Schema.String })

class Refused extends Schema.TaggedError<Refused>()("Refused", { by: Schema.String }) {}

const Reimburse = Orchestration.make("Reimburse", {
  payload: Expense,
  success: Schema.String,
  error: Schema.Union([Refused, Completion.CompletionExpired])
})

const mails: Array<string> = []

const mail = (_to: string, text: string) => Effect.sync(() => void mails.push(text))

const Approve = External.make("Approve", {
  payload: Expense,
  success: Schema.Struct({ by: Schema.String }),
  error: Refused,
  expiry: "7 days"
})

const ApproveLive = Approve.toLayer(({ purpose }, token) =>
  mail("the manager", `approve ${purpose}: https://expenses.example/approve#${token}`)
)

const ReimburseLive = Reimburse.toLayer(Effect.fn(function*(expense) {
  const { by } = yield* Approve.execute(expense)
  return by
}))

const Api = HttpApi.make("expenses").add(CompletionApi.group.prefix("/completions"))

const ApiLive = HttpApiBuilder.layer(Api).pipe(
  Layer.provide(CompletionApi.layer(Api)),
  Layer.provide(Completion.layer({ activities: [Approve] })),
  Layer.provide(Completion.layerKeysConfig)
)

const approve = (token: string, by: string) => Approve.complete(token, { by })

const keys = Layer.provide(
  Completion.layerKeysConfig,
  ConfigProvider.layer(
    ConfigProvider.fromEnv({ env: { DUROXIDE_COMPLETION_KEYS: `${"a".repeat(32)},${"b".repeat(32)}` } })
  )
)

it("docs/recipes.md, Completions from outside: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/completions.test.ts"))
  const examples = Docs.blocks(Docs.section("docs/recipes.md", "Completions from outside"), "ts")
  assert.lengthOf(examples, 3)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
})

it.effect("docs/recipes.md, Completions from outside: asked by mail, answered by HTTP and by a handler", () =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    const app = yield* HttpRouter.toHttpEffect(Layer.provide(ApiLive, HttpServer.layerServices))
    const handler = HttpEffect.toWebHandler(app)
    for (const id of ["e1", "e2"]) yield* client.start(Reimburse, { instanceId: id, payload: { purpose: id } })
    const tokenOf = (id: string) => mails.find((text) => text.includes(`${id}:`))!.split("#")[1]!
    const answer = yield* Effect.promise(async () => {
      const response = await handler(
        new Request(`http://localhost/completions/fail?token=${tokenOf("e1")}`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ error: { _tag: "Refused", by: "Ada" } })
        })
      )
      return [response.status, await response.text()]
    })
    assert.strictEqual(answer[0], 200, String(answer[1]))
    assert.deepStrictEqual(yield* Effect.flip(client.wait(Reimburse, "e1")), new Refused({ by: "Ada" }))
    yield* approve(tokenOf("e2"), "Ada")
    assert.strictEqual(yield* client.wait(Reimburse, "e2"), "Ada")
  }).pipe(
    Effect.scoped,
    Effect.provide(
      Completion.layer({ activities: [Approve] }).pipe(
        Layer.provideMerge(
          TestRuntime.layer(
            Layer.provide(Runtime.layer({ orchestrations: [Reimburse], activities: [Approve] }), [
              ReimburseLive,
              ApproveLive
            ])
          )
        ),
        Layer.provideMerge(keys),
        Layer.provideMerge(
          ConfigProvider.layer(
            ConfigProvider.fromEnv({ env: { DUROXIDE_COMPLETION_KEYS: `${"b".repeat(32)}, ${"a".repeat(32)}` } })
          )
        )
      )
    )
  ))
