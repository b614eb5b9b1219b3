import { assert, it } from "@effect/vitest"
import { Client } from "@modelcontextprotocol/sdk/client/index.js"
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js"
import * as Effect from "effect/Effect"
import { spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import { fileURLToPath } from "node:url"
import { commandTools } from "../../src/cli/internal/mcpTools.ts"
import * as Roles from "../../src/prisma/Roles.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"
import * as Shop from "./shop.ts"

const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url))

/** A client of the official SDK, connected to `duroxide-prisma mcp`. */
const connect = (url: string, ...flags: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const client = new Client({ name: "test", version: "1" })
      await client.connect(
        new StdioClientTransport({
          command: process.execPath,
          args: [main, "mcp", ...flags],
          env: { DATABASE_URL: url },
          stderr: "ignore"
        })
      )
      return client
    }),
    (client) => Effect.promise(() => client.close())
  )

const call = (client: Client, name: string, args: Record<string, unknown> = {}) =>
  Effect.promise(() => client.callTool({ name, arguments: args })).pipe(
    Effect.map((result) => ({
      isError: result.isError === true,
      answer: (result.structuredContent as { readonly answer: any } | undefined)?.answer,
      text: JSON.stringify(result.content)
    }))
  )

it.layer(Shop.layer, { excludeTestServices: true })("duroxide-prisma mcp", (it) => {
  it.effect("the official client sees its tools, all marked as reading, and gets what the commands print", () =>
    Effect.scoped(Effect.gen(function*() {
      const shop = yield* Shop.Shop
      const client = yield* connect(shop.url)
      const { tools } = yield* Effect.promise(() => client.listTools())
      assert.sameMembers(tools.map(({ name }) => name), commandTools.map(({ tool }) => tool.name))
      for (const { annotations, name } of tools) {
        assert.deepInclude(annotations, { readOnlyHint: true, destructiveHint: false }, name)
      }
      for (const { tool } of commandTools.filter(({ tool }) => tool.name !== "show")) {
        const { answer, isError, text } = yield* call(client, tool.name)
        assert.isFalse(isError, `${tool.name}: ${text}`)
        assert.typeOf(answer, ["count", "processes"].includes(tool.name) ? "array" : "object", tool.name)
      }
      const printed = yield* Cli.run("list --json --limit 2 --order id", { env: { DATABASE_URL: shop.url } })
      const { answer } = yield* call(client, "list", { limit: 2, order: "id" })
      assert.deepStrictEqual(answer, JSON.parse(printed.stdout))
    })))

  it.effect("payloads are hidden, unless it is started with --payloads", () =>
    Effect.scoped(Effect.gen(function*() {
      const { url } = yield* Shop.Shop
      const hidden = yield* call(yield* connect(url), "show", { id: "order-4" })
      const shown = yield* call(yield* connect(url, "--payloads"), "show", { id: "order-4" })
      const scheduled = (answer: any) =>
        answer.history.shown.find(({ event }: any) => event === "ActivityScheduled")!.text
      assert.strictEqual(scheduled(hidden.answer), "Charge")
      assert.match(scheduled(shown.answer), /^Charge \{"amount":\d+\}$/)
      assert.strictEqual(hidden.answer.keyValues.label, "(hidden)")
      assert.notInclude(hidden.text, "amount")
    })))

  it.effect("what a client gets wrong is an error of its call: the next one is answered", () =>
    Effect.scoped(Effect.gen(function*() {
      const { url } = yield* Shop.Shop
      const client = yield* connect(url)
      const missing = yield* call(client, "show", { id: "--help" })
      assert.isTrue(missing.isError)
      assert.include(missing.text, "--help")
      assert.include(missing.text, "NotFound")
      for (
        const [name, args] of [
          ["show", {}],
          ["show", { id: "x".repeat(3_000) }],
          ["list", { limit: 1_000_000 }],
          ["list", { status: "running --payloads" }]
        ] as const
      ) {
        const exit = yield* Effect.exit(
          Effect.tryPromise(() => client.callTool({ name, arguments: args })).pipe(
            Effect.filterOrFail((result) => result.isError !== true)
          )
        )
        assert.strictEqual(exit._tag, "Failure", JSON.stringify(args).slice(0, 100))
      }
      // A value that looks like a flag is a value.
      const none = yield* call(client, "list", { "name": "--url=postgresql://elsewhere/x" })
      assert.isTrue(none.isError || none.answer.instances.length === 0, none.text)
      assert.isFalse((yield* call(client, "count")).isError)
    })))

  it.effect("garbage, and lines without an end, get errors, and the process ends with its input", () =>
    Effect.gen(function*() {
      const { url } = yield* Shop.Shop
      const { code, lines } = yield* Effect.promise(() =>
        new Promise<{ readonly code: number | null; readonly lines: ReadonlyArray<any> }>((resolve) => {
          const child = spawn(process.execPath, [main, "mcp"], {
            env: { DATABASE_URL: url },
            stdio: ["pipe", "pipe", "ignore"]
          })
          let output = ""
          child.stdout.on("data", (chunk) => (output += String(chunk)))
          child.on(
            "exit",
            (code) => resolve({ code, lines: output.trim().split("\n").map((line) => JSON.parse(line)) })
          )
          const send = (message: object) => child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`)
          child.stdin.write("not json\n")
          child.stdin.write(`${"x".repeat(3_000_000)}\n`)
          child.stdin.write("[]\n123\n{\"jsonrpc\":\"2.0\",\"id\":7}\n")
          send({
            id: 1,
            method: "initialize",
            params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "raw", version: "1" } }
          })
          send({ method: "notifications/initialized" })
          send({ id: 2, method: "tools/call", params: { name: "delete", arguments: {} } })
          send({ id: 3, method: "tools/call", params: { name: "count", arguments: {} } })
          child.stdin.end()
        })
      )
      assert.strictEqual(code, 0)
      const of = (id: number) => lines.find((line) => line.id === id)
      const refused = lines.filter(({ id }) => id === null).map(({ error }) => error.code)
      assert.include(refused, -32_700)
      assert.include(refused, -32_600)
      assert.strictEqual(of(1).result.serverInfo.name, "duroxide-prisma")
      assert.isTrue(of(2).error !== undefined || of(2).result.isError === true)
      assert.isArray(of(3).result.structuredContent.answer)
    }))
})

it.live("the role of readers suffices for every tool", () =>
  Effect.scoped(Effect.gen(function*() {
    const { schema, sql, url } = yield* PgServer.database
    const reader = `reader-${randomUUID()}`
    yield* Effect.acquireRelease(
      sql(`CREATE ROLE "${reader}" LOGIN PASSWORD 'sesame'`),
      () => sql(`DROP OWNED BY "${reader}" CASCADE; DROP ROLE "${reader}"`)
    )
    yield* Roles.apply({ url, schema, roles: { reader } })
    const login = new URL(url)
    login.username = reader
    login.password = "sesame"
    const client = yield* connect(login.toString())
    for (const { tool } of commandTools.filter(({ tool }) => tool.name !== "show")) {
      const { isError, text } = yield* call(client, tool.name)
      assert.isFalse(isError, `${tool.name}: ${text}`)
    }
  })).pipe(Effect.provide(PgServer.layer)))
