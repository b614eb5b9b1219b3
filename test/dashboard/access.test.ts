/**
 * The dashboard as an attacker meets it.
 */
import { assert, it } from "@effect/vitest"
import { KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Served from "./served.ts"

const Anything = Orchestration.make("Anything", { payload: Schema.Unknown })

const bearer = (token: keyof typeof Served.tokens) => ({ authorization: `Bearer ${Served.tokens[token]}` })

const post = (headers: Record<string, string>, body: unknown = { instanceId: "order-1" }): RequestInit => ({
  method: "POST",
  headers: { "content-type": "application/json", ...headers },
  body: JSON.stringify(body)
})

const secret = (of: string) => ({ text: `secret ${of}` })

/** An orchestration with payloads in every place. */
const Secretive = (() => {
  const Text = Schema.Struct({ text: Schema.String })
  const Keep = Orchestration.make("Keep", { payload: Text, success: Text })
  const Given = Signal.make("Given", { payload: Text })
  const Value = KeyValue.make("value", Text)
  return {
    Keep,
    Given,
    layer: ({ url }: { readonly url: string }) =>
      Runtime.layer({ orchestrations: [Keep], activities: [] }).pipe(
        Layer.provide(Keep.toLayer(() =>
          Effect.gen(function*() {
            yield* Value.set(secret("value"))
            yield* Given.wait
            return secret("output")
          })
        )),
        Layer.provide(PrismaProvider.layer({ url })),
        Layer.provide(Logger.layer([]))
      )
  }
})()

const jsonOf = (response: Response) => Effect.promise(() => response.json() as Promise<object>)

const ours = { "x-duroxide-dashboard": "1" }

it.layer(PgServer.layer, { excludeTestServices: true })("Access", (it) => {
  const opened = (options: Parameters<typeof Served.open>[1] = {}) =>
    Effect.flatMap(PgServer.PgServer, ({ url }) => Served.open(url, options))

  it.effect("no answer without a token, or with a wrong one", () =>
    Effect.gen(function*() {
      const { send } = yield* opened()
      const paths = ["session", "overview", "live", "instances", "instance?id=a", "instance/history?id=a", "actions"]
      for (const path of paths) {
        for (
          const headers of [{}, { authorization: "Bearer wrong" }, { authorization: `Basic ${Served.tokens.read}` }]
        ) {
          const response = yield* Effect.promise(() => send(`/api/${path}`, { headers }))
          assert.strictEqual(response.status, 401, path)
          assert.deepInclude(yield* jsonOf(response), { _tag: "Unauthorized" })
        }
      }
      const action = yield* Effect.promise(() => send("/api/terminate", post(ours)))
      assert.strictEqual(action.status, 401)
    }))

  it.effect("other sites get no answer, and cannot act even with a token", () =>
    Effect.gen(function*() {
      const { client, send } = yield* opened({ access: () => Effect.succeed({ name: "anyone", role: "operate" }) })
      yield* client.start(Anything, { instanceId: "order-1", payload: null })
      const foreign = [
        send("/api/session", { headers: { "sec-fetch-site": "cross-site" } }),
        send("/api/session", { headers: { "sec-fetch-site": "same-site" } }),
        send("/api/terminate", post({ ...ours, "sec-fetch-site": "cross-site" })),
        // What a form, or a script without leave, can send.
        send("/api/terminate", post({ origin: "https://evil.example" })),
        send("/api/terminate", post({ "x-duroxide-dashboard": "0" })),
        send("/api/terminate", post({ "x-duroxide-dashboard": "" })),
        send("/api/terminate", {
          method: "POST",
          headers: { "content-type": "text/plain" },
          body: "{\"instanceId\":\"order-1\"}"
        })
      ]
      for (const request of foreign) {
        const response = yield* Effect.promise(() => request)
        assert.strictEqual(response.status, 403)
        assert.isNull(response.headers.get("access-control-allow-origin"))
      }
      // Asked for leave, it gives none.
      const asked = yield* Effect.promise(() =>
        send("/api/terminate", {
          method: "OPTIONS",
          headers: { origin: "https://evil.example", "access-control-request-headers": "x-duroxide-dashboard" }
        })
      )
      assert.isNull(asked.headers.get("access-control-allow-origin"))
      assert.isNull(asked.headers.get("access-control-allow-headers"))
      assert.strictEqual((yield* client.status("order-1"))._tag, "Running")
      const own = yield* Effect.promise(() => send("/api/session", { headers: { "sec-fetch-site": "same-origin" } }))
      assert.strictEqual(own.status, 200)
    }))

  it.effect("a reader may do none of what an operator may", () =>
    Effect.gen(function*() {
      const { client, send } = yield* opened()
      yield* client.start(Anything, { instanceId: "order-2", payload: null })
      const actions = [
        "start",
        "signal",
        "interrupt",
        "terminate",
        "retry",
        "fork",
        "redrive-signal",
        "delete",
        "pause",
        "resume",
        "bulk",
        "redrive-tasks",
        "cancel-tasks",
        "redrive-messages"
      ]
      for (const action of actions) {
        const response = yield* Effect.promise(() => send(`/api/${action}`, post({ ...ours, ...bearer("read") })))
        assert.strictEqual(response.status, 403, action)
        assert.deepInclude(yield* jsonOf(response), { message: "ben may look, and not change anything" })
      }
      assert.strictEqual((yield* client.status("order-2"))._tag, "Running")
    }))

  it.effect("payloads are hidden from one who may not see them, and from all if the option says so", () =>
    Effect.gen(function*() {
      const { sql } = yield* PgServer.PgServer
      const shown = yield* opened()
      const hidden = yield* opened({ payloads: "hide" })
      const { client } = shown
      yield* Layer.build(Secretive.layer(yield* PgServer.PgServer))
      yield* client.start(Secretive.Keep, { instanceId: "secretive", payload: secret("input") })
      yield* client.send(Secretive.Given, "secretive", secret("signal"))
      yield* client.wait(Secretive.Keep, "secretive")
      yield* client.start(Secretive.Keep, { instanceId: "waiting", payload: secret("input") })
      yield* sql(
        `INSERT INTO queue_tasks (id, name, payload, status, max_attempts, run_at, queue, created_at, updated_at, dead_at)
         VALUES (gen_random_uuid(), 'mail', '{"text":"secret task"}', 'Dead', 1, now(), 'tasks', now(), now(), now())`
      )
      const read = Effect.fnUntraced(function*(send: Served.Served["send"], token: keyof typeof Served.tokens) {
        const texts = yield* Effect.forEach(
          ["instance?id=secretive", "instance/history?id=secretive", "instances", "tasks", "instance?id=waiting"],
          (path) => Effect.promise(async () => (await send(`/api/${path}`, { headers: bearer(token) })).text())
        )
        const live = yield* Effect.promise(async () => {
          const response = await send("/api/instance/live?id=secretive", { headers: bearer(token) })
          const reader = response.body!.getReader()
          const { value } = await reader.read()
          await reader.cancel()
          return new TextDecoder().decode(value)
        })
        return [...new Set([...texts, live].join().match(/secret \w+/g))].sort()
      })
      assert.deepStrictEqual(yield* read(shown.send, "read"), [
        "secret input",
        "secret output",
        "secret signal",
        "secret task",
        "secret value"
      ])
      assert.deepStrictEqual(yield* read(shown.send, "blind"), [])
      assert.deepStrictEqual(yield* read(hidden.send, "operate"), [])
    }).pipe(Effect.scoped))

  it.effect("no path leads out of the files of the page, and each answer keeps a browser from guessing", () =>
    Effect.gen(function*() {
      const { send } = yield* opened()
      const page = yield* Effect.promise(() => send("/"))
      assert.strictEqual(page.status, 200)
      const policy = page.headers.get("content-security-policy") ?? ""
      assert.include(policy, "default-src 'none'")
      assert.include(policy, "frame-ancestors 'none'")
      assert.notInclude(policy, "unsafe")
      const html = yield* Effect.promise(() => page.text())
      const script = /src="\.\/(assets\/[^"]+\.js)"/.exec(html)?.[1]
      assert.isDefined(script)
      assert.notMatch(html, /<script(?![^>]*\bsrc=)/, "no inline script")
      assert.notMatch(html, /<style|\sstyle=|\son\w+=/, "no inline style, no handler")
      assert.notMatch(html, /https?:\/\//, "no remote asset")
      const asset = yield* Effect.promise(() => send(`/${script}`, { headers: { "accept-encoding": "gzip" } }))
      assert.strictEqual(asset.status, 200)
      assert.strictEqual(asset.headers.get("content-encoding"), "gzip")
      assert.include(asset.headers.get("cache-control") ?? "", "immutable")
      for (
        const path of [
          "/../package.json",
          "/assets/../../../package.json",
          "/%2e%2e/package.json",
          "/..%2fpackage.json",
          "/assets/%2e%2e%2f%2e%2e%2f%2e%2e%2fpackage.json",
          "/assets/..\\..\\package.json",
          "/src/index.ts",
          "/assets/"
        ]
      ) {
        assert.strictEqual((yield* Effect.promise(() => send(path))).status, 404, path)
      }
      for (const response of [page, asset, yield* Effect.promise(() => send("/api/session"))]) {
        assert.strictEqual(response.headers.get("x-content-type-options"), "nosniff")
        assert.strictEqual(response.headers.get("referrer-policy"), "no-referrer")
      }
      const bare = yield* Effect.promise(() => send(""))
      assert.strictEqual(bare.status, 308)
      assert.strictEqual(bare.headers.get("location"), "duroxide/")
    }))

  it.effect("hostile ids and texts come back as they are, in JSON alone", () =>
    Effect.gen(function*() {
      const { as, client, send } = yield* opened()
      const page = yield* as("operate")
      const ids = [
        "<img src=x onerror=alert(1)>",
        "\"><script>alert(1)</script>",
        "../../etc/passwd",
        "%2e%2e/%00",
        "a?b#c&id=d",
        "‮evil",
        "'; DROP TABLE instances; --",
        "x".repeat(1024),
        "日本語 💥"
      ]
      for (const instanceId of ids) {
        yield* client.start(Anything, { instanceId, payload: { text: instanceId } })
        const { instance } = yield* page.read.instance({ query: { id: instanceId } })
        assert.strictEqual(instance.instanceId, instanceId)
      }
      const response = yield* Effect.promise(() => send("/api/instances", { headers: bearer("read") }))
      assert.match(response.headers.get("content-type") ?? "", /^application\/json/)
      const { instances } = yield* page.read.instances({ query: {} })
      for (const instanceId of ids) assert.isTrue(instances.some((one) => one.instanceId === instanceId), instanceId)
    }))

  it.effect("a request that the dashboard does not know is refused in one answer", () =>
    Effect.gen(function*() {
      const { send } = yield* opened()
      const bad = [
        post({ ...ours, ...bearer("operate") }, { instanceId: 5 }),
        post({ ...ours, ...bearer("operate") }, null),
        { ...post({ ...ours, ...bearer("operate") }), body: "{" },
        { ...post({ ...ours, ...bearer("operate") }), body: "x".repeat(100_000) }
      ]
      for (const init of bad) {
        assert.strictEqual((yield* Effect.promise(() => send("/api/terminate", init))).status, 400)
      }
      const lists = [
        "instances?status=Any",
        "instances?limit=abc",
        "instance",
        "instances?cursor=%00",
        "instances?limit=-1",
        "instance/history?id=a%00b",
        "instance/history?id=a&limit=0",
        "instance/history?id=a&limit=5001",
        "reasons?limit=1.5",
        "tasks?cursor=x",
        "instances?attributes=%3D",
        "schedules?cursor=%00",
        "schedule?name=%00"
      ]
      for (const path of lists) {
        const response = yield* Effect.promise(() => send(`/api/${path}`, { headers: bearer("read") }))
        assert.isTrue(response.status === 400 || response.status === 409, `${path}: ${response.status}`)
        if (path.includes("%00")) assert.deepInclude(yield* jsonOf(response), { code: "InvalidInput" }, path)
      }
      const said = (path: string, init: RequestInit) =>
        Effect.promise(() => send(`/api/${path}`, init)).pipe(Effect.flatMap(jsonOf), Effect.map(JSON.stringify))
      const read = { headers: bearer("read") }
      assert.strictEqual(
        yield* said("instances?status=Bogus", read),
        JSON.stringify({
          _tag: "InvalidRequest",
          message:
            "query: Expected \"Running\" | \"Completed\" | \"Failed\" | \"Cancelled\" | \"Blocked\" | \"Paused\" " +
            "at [\"status\"]"
        })
      )
      assert.include(yield* said("instances?limit=5000", read), "less than or equal to 1000")
      assert.include(yield* said("instances?state=Failed", read), "no excess property at [\\\"state\\\"]")
      for (const init of bad) assert.include(yield* said("terminate", init), "\"message\":\"payload: ")
      // What no one may see is not described either.
      assert.include(yield* said("instances?status=Bogus", {}), "Unauthorized")
    }))

  it.effect("10,000 streams: so many as the option allows are open, all others are refused, and reads continue", () =>
    Effect.gen(function*() {
      const { as, client, send } = yield* opened({ maxStreams: 50 })
      yield* client.start(Anything, { instanceId: "watched", payload: null })
      const open = (path: string) =>
        Effect.promise(async () => {
          const stop = new AbortController()
          return { stop, response: await send(`/api/${path}`, { headers: bearer("read"), signal: stop.signal }) }
        })
      const all = yield* Effect.forEach(
        Array.from({ length: 10_000 }, (_, n) => n % 2 === 0 ? "live" : "instance/live?id=watched"),
        open,
        { concurrency: 500 }
      )
      const counts = new Map<number, number>()
      for (const { response: { status } } of all) counts.set(status, (counts.get(status) ?? 0) + 1)
      assert.deepStrictEqual([...counts].toSorted(([one], [other]) => one - other), [[200, 50], [503, 9950]])
      const page = yield* as("read")
      assert.strictEqual((yield* page.read.session({})).actor, "ben")
      // Those that close make room.
      for (const { stop } of all) stop.abort()
      for (const path of ["live", "instance/live?id=watched"]) {
        const again = Effect.promise(async () => {
          const response = await send(`/api/${path}`, { headers: bearer("read") })
          await response.body?.cancel()
          return response.status
        })
        yield* waitUntil(Effect.map(again, (status) => status === 200))
        // Each of them gives its place back.
        for (let n = 0; n < 120; n++) yield* waitUntil(Effect.map(again, (status) => status === 200))
      }
    }))
})
