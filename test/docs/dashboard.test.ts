/** The examples and tables of docs/dashboard.md. */
import { assert, it } from "@effect/vitest"
import { RuntimeConfig } from "duroxide-prisma"
import { Api, Dashboard } from "duroxide-prisma/dashboard"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Config, ConfigProvider, Effect, Layer, Logger } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest, HttpEffect, HttpRouter } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import { readFileSync } from "node:fs"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

export const DashboardLive = Layer.unwrap(
  Effect.gen(function*() {
    const token = yield* Config.Redacted("DASHBOARD_TOKEN")
    return Dashboard.layer({
      path: "/duroxide",
      access: Dashboard.bearer([{ name: "on-call", role: "operate", token }])
    })
  })
).pipe(Layer.provide(PrismaProvider.layerEnvironment({ migrate: "verify" })))

export const LinkedLive = RuntimeConfig.layer({ dashboardUrl: "https://shop.example/duroxide" })

const sessions = new Map<string, { readonly name: string; readonly isAdmin: boolean }>()

export const access: Dashboard.Access = (request) => {
  const session = sessions.get(request.cookies["sid"] ?? "")
  return session === undefined
    ? Effect.fail(new Api.Unauthorized({ message: "Log in at /login first" }))
    : Effect.succeed({ name: session.name, role: session.isAdmin ? "operate" : "read" })
}

export const retryOne = Effect.fn(function*(token: string) {
  const dashboard = yield* HttpApiClient.make(Api.Api, {
    baseUrl: "https://shop.example/duroxide",
    transformClient: HttpClient.mapRequest((request) =>
      request.pipe(
        HttpClientRequest.bearerToken(token),
        HttpClientRequest.setHeader("x-duroxide-dashboard", "1")
      )
    )
  })
  const { instances } = yield* dashboard.read.instances({ query: { status: "Failed" } })
  for (const { instanceId } of instances.slice(0, 1)) {
    yield* dashboard.operate.retry({ payload: { instanceId, dryRun: false } })
  }
  return instances.length
})

const page = Docs.read("docs/dashboard.md")

it.layer(PgServer.layer, { excludeTestServices: true })("docs/dashboard.md:", (it) => {
  it.effect("its examples are those tested here, and answer", () =>
    Effect.gen(function*() {
      const here = Docs.withoutIndentation(Docs.read("test/docs/dashboard.test.ts"))
      const examples = Docs.blocks(page, "ts").map(({ code }) => code.replace(/^import .*\n+/gm, ""))
      assert.lengthOf(examples, 4)
      for (const code of examples) assert.include(here, Docs.withoutIndentation(code))
      const { url } = yield* PgServer.PgServer
      const app = yield* HttpRouter.toHttpEffect(DashboardLive).pipe(
        Effect.provide([
          ConfigProvider.layer(
            ConfigProvider.fromEnv({ env: { DATABASE_URL: url, DASHBOARD_TOKEN: "someone is on call" } })
          ),
          Logger.layer([])
        ])
      )
      const handler = HttpEffect.toWebHandler(app)
      const fetch = (input: Request | URL | string, init?: RequestInit) => {
        const { href, pathname, search } = new URL(input instanceof Request ? input.url : input)
        assert.match(href, /^https:\/\/shop\.example\/duroxide\//)
        return handler(new Request(`http://localhost${pathname}${search}`, init))
      }
      const withFetch = Effect.provide([FetchHttpClient.layer, Layer.succeed(FetchHttpClient.Fetch, fetch)])
      assert.strictEqual(yield* retryOne("someone is on call").pipe(withFetch), 0)
      const refused = yield* Effect.flip(retryOne("someone else calls").pipe(withFetch))
      assert.strictEqual(refused._tag, "Unauthorized")
      const hosted = yield* HttpRouter.toHttpEffect(Dashboard.layer({ path: "/", access })).pipe(
        Effect.provide([PrismaProvider.layer({ url }), Logger.layer([])])
      )
      const ask = (cookie: string) =>
        Effect.promise(async () => {
          const response = await HttpEffect.toWebHandler(hosted)(
            new Request("http://localhost/api/session", { headers: { cookie } })
          )
          return await response.json() as object
        })
      assert.deepInclude(yield* ask(""), { message: "Log in at /login first" })
      sessions.set("one", { name: "ada", isAdmin: false })
      assert.deepInclude(yield* ask("sid=one"), { actor: "ada", role: "read" })
      const openApi = yield* Effect.promise(async () =>
        (await handler(new Request("http://localhost/duroxide/api/openapi.json"))).json() as Promise<
          { paths: object; servers: object; info: object }
        >
      )
      assert.deepStrictEqual(openApi.servers, [{ url: "/duroxide" }])
      assert.deepInclude(openApi.info, {
        version: (JSON.parse(Docs.read("package.json")) as { version: string }).version
      })
      assert.includeMembers(Object.keys(openApi.paths), ["/api/instances", "/api/retry"])
      assert.isTrue(Layer.isLayer(LinkedLive))
    }))

  it("its table of options has every option", () => {
    const source = readFileSync("src/dashboard/Dashboard.ts", "utf8")
    const [, options = ""] = /export interface Options \{(.*?)\n\}/s.exec(source) ?? []
    const names = [...options.matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, name]) => name)
    const rows = [...Docs.section("docs/dashboard.md", "In a service").matchAll(/^\| `(\w+)` /gm)].map(([, name]) =>
      name
    )
    assert.isAtLeast(names.length, 5)
    assert.deepStrictEqual(rows, names)
  })

  it("its table of views has every view of the page", () => {
    const navigation = readFileSync("ui/src/app/Nav.tsx", "utf8")
    const section = Docs.section("docs/dashboard.md", "What it shows")
    const rows = [...section.matchAll(/^\| ([A-Z][\w ]*?) +\|/gm)].map(([, name]) => name!)
    for (const name of rows.slice(1)) assert.include(navigation, `"${name}"`)
    assert.isAtLeast(rows.length, 8)
  })
})
