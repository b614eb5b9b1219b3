/**
 * What `ui` says and serves, by its flags.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Cli from "./cli.ts"
import * as Shop from "./shop.ts"

/** Runs `ui` until the scope is closed; ends once it listens. */
const serving = Effect.fnUntraced(function*(args: string, env: Readonly<Record<string, string>> = {}, folder?: string) {
  const { url } = yield* Shop.Shop
  let printed = ""
  const fiber = yield* Effect.forkScoped(
    Cli.run(`ui --port 0 --json ${args}`.trim(), {
      env: { DATABASE_URL: url, ...env },
      ...(folder !== undefined && { folder }),
      onPrint: (text, to) => {
        if (to === "stdout") printed += text
      }
    })
  )
  yield* waitUntil(Effect.sync(() => printed.endsWith("\n") || fiber.pollUnsafe() !== undefined))
  if (printed === "") return yield* Effect.die(new Error(JSON.stringify(yield* Fiber.join(fiber))))
  const answer = JSON.parse(printed) as {
    readonly url: string
    readonly readOnly: boolean
    readonly hidePayloads: boolean
  }
  const [base = "", token] = answer.url.split("#token=")
  const get = (to: string, given = token) =>
    Effect.promise(async () => {
      const response = await fetch(`${base}api/${to}`, { headers: { authorization: `Bearer ${given}` } })
      return { status: response.status, body: await response.json() as Record<string, any> }
    })
  return { answer, base, token, get }
})

it.layer(Shop.layer, { excludeTestServices: true })("ui", (it) => {
  it.effect("serves with a token of its own, different each time", () =>
    Effect.gen(function*() {
      const one = yield* serving("")
      const other = yield* serving("")
      assert.match(one.token ?? "", /^[\w-]{32}$/)
      assert.notStrictEqual(one.token, other.token)
      assert.deepInclude((yield* one.get("session")).body, { role: "operate", seesPayloads: true, orchestrations: [] })
      assert.strictEqual((yield* one.get("session", other.token)).status, 401)
    }).pipe(Effect.scoped))

  it.effect("changes nothing with --read-only, and shows no payloads with --hide-payloads", () =>
    Effect.gen(function*() {
      const { answer, base, get, token } = yield* serving("--read-only --hide-payloads")
      assert.deepInclude(answer, { readOnly: true, hidePayloads: true })
      assert.deepInclude((yield* get("session")).body, { role: "read", seesPayloads: false })
      const refused = yield* Effect.promise(() =>
        fetch(`${base}api/terminate`, {
          method: "POST",
          headers: {
            authorization: `Bearer ${token}`,
            "content-type": "application/json",
            "x-duroxide-dashboard": "1"
          },
          body: JSON.stringify({ instanceId: "order-4" })
        })
      )
      assert.strictEqual(refused.status, 403)
      assert.isNull((yield* get("instance?id=order-1")).body["instance"].output)
    }).pipe(Effect.scoped))

  it.effect("makes forms of what a module exports", () =>
    Effect.gen(function*() {
      const { get } = yield* serving("--module test/cli/shop.ts")
      const { orchestrations } = (yield* get("session")).body
      assert.includeMembers(orchestrations.map(({ name }: { name: string }) => name), ["Order"])
      assert.isNotNull(orchestrations[0].payload)
      const { url } = yield* Shop.Shop
      const missing = yield* Cli.run("ui --port 0 --module ./no-such.js", { env: { DATABASE_URL: url } })
      assert.strictEqual(missing.exitCode, 2)
      assert.include(missing.stderr, "there is no file ./no-such.js")
    }).pipe(Effect.scoped))

  it.effect("takes a token of the environment, or of .env, which the link then leaves out", () =>
    Effect.gen(function*() {
      const { url } = yield* Shop.Shop
      const given = yield* serving("", { DUROXIDE_UI_TOKEN: "a token of sixteen" })
      assert.isUndefined(given.token)
      assert.strictEqual((yield* given.get("session", "a token of sixteen")).status, 200)
      const folder = mkdtempSync(path.join(tmpdir(), "ui-"))
      writeFileSync(path.join(folder, ".env"), "DUROXIDE_UI_TOKEN=from-the-file-of-the-folder\n")
      const ofFile = yield* serving("", {}, folder)
      assert.strictEqual((yield* ofFile.get("session", "from-the-file-of-the-folder")).status, 200)
      rmSync(folder, { recursive: true })
      for (const short of ["short", "ein schlüssel mit umlaut"]) {
        const refused = yield* Cli.run("ui --port 0", { env: { DATABASE_URL: url, DUROXIDE_UI_TOKEN: short } })
        assert.strictEqual(refused.exitCode, 2)
        assert.include(refused.stderr, "DUROXIDE_UI_TOKEN has fewer than 16 characters, or others than ASCII")
        assert.notInclude(refused.stderr, short)
      }
    }).pipe(Effect.scoped))

  it.effect("a port in use is one line that says what to do", () =>
    Effect.gen(function*() {
      const { url } = yield* Shop.Shop
      const other = yield* Effect.acquireRelease(
        Effect.callback<ReturnType<typeof createServer>>((resume) => {
          const server = createServer()
          server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
        }),
        (server) => Effect.sync(() => server.close())
      )
      const { port } = other.address() as AddressInfo
      const { exitCode, stderr } = yield* Cli.run(`ui --port ${port}`, { env: { DATABASE_URL: url } })
      assert.strictEqual(exitCode, 2)
      assert.include(stderr, `port ${port} of 127.0.0.1 is in use: give another --port, or --port 0 for a free one`)
    }).pipe(Effect.scoped))
})
