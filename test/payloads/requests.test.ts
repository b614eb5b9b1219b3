/**
 * Requests, their answers, and starts of all kinds, with encrypted payloads: plain for programs and clients, sealed in
 * every row.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider, Transaction } from "duroxide-prisma/prisma"
import { PayloadCodec } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as Cli from "../cli/cli.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { Ask, canary, Desk, encrypted, encryption, guest, hotel, keysText, Note, Refused, rows } from "./utils.ts"

type Codec = Layer.Layer<PayloadCodec.PayloadCodec> | Layer.Layer<never>

const client = (url: string, codec: Codec) =>
  Client.layer.pipe(
    Layer.provideMerge(PrismaProvider.layer({ url, maxConnections: 3 })),
    Layer.provide(codec),
    Layer.provide(Logger.layer([]))
  )

const worker = (url: string, codec: Codec, lines?: Array<string>) =>
  hotel.pipe(
    Layer.provideMerge(client(url, codec)),
    Layer.provide(RuntimeConfig.layer({ shutdownTimeout: 1_000 })),
    Layer.provide(Logger.layer(lines === undefined ? [] : [Logger.map(Logger.formatJson, (line) => lines.push(line))]))
  )

const named = (what: string) => ({ name: `${canary} ${what}` })

const isPlain = ({ row }: { readonly row: string }) => row.includes(canary)

describe("Encrypted requests and starts", () => {
  it.live("are plain above the store and sealed in every row, however an instance is started", () =>
    Effect.gen(function*() {
      const database = yield* PgServer.database
      const { url } = database
      const later = { delay: "1 hour" } as const
      const lines: Array<string> = []
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const orStart = { orchestration: Desk, payload: guest }
        const many = [{ instanceId: "a", payload: guest }, { instanceId: "b", payload: guest }]
        yield* client.startMany(Desk, many)
        yield* client.startMany(Desk, [{ instanceId: "later", payload: guest, ...later }])
        yield* client.send(Note, "c", guest, { orStart })
        yield* client.send(Note, "later too", guest, { orStart: { ...orStart, ...later } })
        // In a transaction of the application.
        const payloads = PayloadCodec.make([encryption("k1")])
        const connection = yield* PgServer.connect(url.replace(/\?.*$/, ""))
        yield* Effect.promise(() => connection.query("BEGIN"))
        const within = Client.within(Transaction.make(connection, { schema: database.schema, payloads }))
        yield* within.startMany(Desk, [{ instanceId: "d", payload: guest, ...later }])
        yield* within.send(Note, "e", guest, { orStart: { ...orStart, ...later } })
        yield* Effect.promise(() => connection.query("COMMIT"))
        const queued = yield* database.sql<{ readonly id: string; readonly text: string }>(
          "SELECT instance_id AS id, string_agg(work_item, ' ') AS text FROM orchestrator_queue GROUP BY 1 ORDER BY 1"
        )
        const sealedTexts = queued.map(({ id, text }) => [id, text.split("$sealed").length - 1])
        for (const [id, texts] of [["d", 1], ["e", 2], ["later", 1], ["later too", 2]] as const) {
          assert.deepStrictEqual(sealedTexts.find(([found]) => found === id), [id, texts])
        }

        assert.deepStrictEqual(yield* client.wait(Desk, "c"), guest)
        assert.strictEqual(yield* client.request(Ask, "a", guest), `room 7 for ${canary}`)
        for (const what of ["late", "early"]) {
          const refused = yield* Effect.flip(client.request(Ask, "a", named(what)))
          assert.deepStrictEqual(refused, new Refused({ reason: named(what).name }))
        }
        const died = yield* Effect.flip(client.request(Ask, "a", named("dead")))
        assert.strictEqual(died._tag, "RequestFailed")
        assert.include(died.message, canary)
        assert.include(lines.join("\n"), "Request: handler died")
        assert.notInclude(lines.join("\n"), canary)
        // The answer is kept.
        assert.deepStrictEqual(
          yield* Effect.all([
            client.request(Ask, "b", guest, { requestId: "q" }),
            client.request(Ask, "b", guest, { requestId: "q" })
          ]),
          [`room 7 for ${canary}`, `room 7 for ${canary}`]
        )
        yield* client.send(Note, "a", guest)
        assert.deepStrictEqual(yield* client.wait(Desk, "a"), guest)
        yield* client.start(Desk, { instanceId: "a", payload: guest, ifExists: "replaceEnded" })
        assert.strictEqual(yield* client.request(Ask, "a", guest), `room 7 for ${canary}`)
        const [end] = yield* Stream.runCollect(client.watch("c"))
        assert.deepStrictEqual(end?._tag === "Ended" && end.status, {
          _tag: "Completed",
          output: JSON.stringify(guest)
        })

        const all = yield* rows(database)
        assert.isAbove(all.filter(({ row }) => row.includes("$sealed")).length, 15)
        assert.deepStrictEqual(all.filter(isPlain), [])
      }).pipe(Effect.provide(worker(url, encrypted("k1"), lines)))

      // Commands print what is stored; with the keys, `request` gets the answer that it has asked for.
      const env = { DATABASE_URL: url }
      const keys = { ...env, DUROXIDE_PAYLOAD_KEYS: keysText("k1") }
      const question = ["request", "b", "Ask", JSON.stringify(guest), "--request-id", "q"]
      assert.include((yield* Cli.run(question, { env: keys })).stdout, `room 7 for ${canary}`)
      const blind = yield* Cli.run(question, { env })
      assert.strictEqual(blind.exitCode, 1)
      assert.include(blind.stderr, "it is encrypted (key k1,")
      for (const options of [{ env }, { env: keys }]) {
        const seen = yield* Cli.run("watch c --key nights", options)
        assert.match(seen.stdout, /Completed encrypted \(key k1, \d+ bytes\)/, seen.stderr)
        assert.match(seen.stdout, /nights: encrypted \(key k1, \d+ bytes\)/)
      }
      assert.include((yield* Cli.run("watch c --decode", { env: keys })).stdout, canary)
    }).pipe(Effect.scoped))

  it.live("wait for a process that has the key, and are not lost", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const ask = Effect.flatMap(
        Client.Client,
        (client) => client.request(Ask, "desk", guest, { requestId: "q", timeout: "2 minutes" })
      )
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Desk, { instanceId: "desk", payload: guest })
        yield* waitUntil(Effect.map(
          sql("SELECT FROM history WHERE event_data LIKE '%duroxide-prisma/request/Ask%'"),
          (rows) => rows.length > 0
        ))
      }).pipe(Effect.provide(worker(url, Layer.empty)))
      // From a client that is gone before the question is read.
      const unread = yield* Effect.flatMap(
        Client.Client,
        (client) => Effect.flip(client.request(Ask, "desk", guest, { requestId: "q", timeout: 0 }))
      ).pipe(Effect.provide(client(url, encrypted("k1"))))
      assert.include(unread, { _tag: "WaitTimeout", progress: "NotReceived" })
      const block = yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const block = Effect.map(
          client.status("desk"),
          (status) => status._tag === "Running" ? Option.getOrUndefined(status.block) : undefined
        )
        yield* waitUntil(Effect.map(block, (block) => block !== undefined))
        return yield* block
      }).pipe(Effect.provide(worker(url, Layer.empty)))
      assert.strictEqual(block?.reason, "DataUnreadable")
      assert.include(block?.problem, "payload of request \"Ask\" does not match its schema: it is encrypted (key k1,")
      // Of the question that was asked, not of a new one.
      assert.strictEqual(yield* Effect.provide(ask, worker(url, encrypted("k1"))), `room 7 for ${canary}`)
      const blind = yield* Effect.flip(Effect.provide(ask, client(url, Layer.empty)))
      assert.strictEqual(blind._tag, "PayloadMismatch")
      assert.include(blind.message, "it is encrypted (key k1,")
    }).pipe(Effect.scoped))
})
