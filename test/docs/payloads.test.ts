import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { PrismaProvider, Transaction } from "duroxide-prisma/prisma"
import { PayloadCodec } from "duroxide-prisma/provider"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { canary, encryption, keysText, rows } from "../payloads/utils.ts"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

type Tx = Parameters<typeof Transaction.make>[0]

const Stay = Orchestration.make("Stay", { payload: Schema.String, success: Schema.String })
const Report = Activity.make("Report", { payload: Schema.String, success: Schema.String })
const StayLive = Stay.toLayer((guest) => Report.execute(guest))
const ReportLive = Report.toLayer(Effect.succeed)

const keys = PayloadCodec.parseKeys(keysText("k1"))
const payloads = PayloadCodec.make([encryption("k1")])
const objects = new Map<string, Uint8Array>()
const bucket = {
  put: (name: string, bytes: Uint8Array) => Effect.sync(() => objects.set(name, bytes)),
  get: (name: string) => Effect.sync(() => objects.get(name))
}

const appOf = (url: string) => {
  // docs/payloads.md
  const PayloadsLive = Layer.unwrap(
    Effect.map(
      PayloadCodec.environment,
      (keys) => PayloadCodec.layer([PayloadCodec.compression(), PayloadCodec.encryption(keys)])
    )
  )

  const App = Runtime.layer({ orchestrations: [Stay], activities: [Report] }).pipe(
    Layer.provide([StayLive, ReportLive]),
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer({ url })),
    Layer.provide(PayloadsLive)
  )
  // docs/payloads.md
  return App
}

// docs/payloads.md
export const within = (tx: Tx) => Client.within(Transaction.make(tx, { schema: "orders", payloads }))

const PayloadsInBucket = PayloadCodec.layer([
  PayloadCodec.encryption(keys),
  PayloadCodec.objectStore({
    above: 65_536,
    put: (name, bytes) => bucket.put(`payloads/${name}`, bytes),
    get: (name) => bucket.get(`payloads/${name}`)
  })
])

export const SharedLive = PayloadCodec.layer([PayloadCodec.encryption(keys)], { sharedWithRust: true })
// docs/payloads.md

describe("docs/payloads.md:", () => {
  it("its code is the code of this test", () => {
    const source = Docs.withoutIndentation(Docs.read("test/docs/payloads.test.ts")).replaceAll("export const", "const")
    for (const { code } of Docs.blocks(Docs.read("docs/payloads.md"), "ts")) {
      assert.include(source, Docs.withoutIndentation(code))
    }
  })

  it.live("what its first example stores is encrypted; its query finds the names of objects", () =>
    Effect.gen(function*() {
      const database = yield* PgServer.database
      const run = (instanceId: string, payload: string) =>
        Effect.flatMap(Client.Client, (client) => client.execute(Stay, { instanceId, payload }))
      const env = { DUROXIDE_PAYLOAD_KEYS: keysText("k1") }
      assert.strictEqual(
        yield* run("a", canary).pipe(
          Effect.provide(appOf(database.url)),
          Effect.provide([ConfigProvider.layer(ConfigProvider.fromEnv({ env })), Logger.layer([])])
        ),
        canary
      )
      assert.deepStrictEqual(yield* rows(database, canary), [])

      const inBucket = Runtime.layer({ orchestrations: [Stay], activities: [Report] }).pipe(
        Layer.provide([StayLive, ReportLive]),
        Layer.provideMerge(Client.layer),
        Layer.provideMerge(PrismaProvider.layer({ url: database.url })),
        Layer.provide([PayloadsInBucket, Logger.layer([])])
      )
      const large = "x".repeat(100_000)
      assert.strictEqual(yield* run("b", large).pipe(Effect.provide(inBucket)), large)
      const [query] = Docs.blocks(Docs.read("docs/payloads.md"), "sql")
      const found = yield* database.sql<{ readonly name: string }>(query!.code)
      assert.isAbove(found.length, 0)
      for (const { name } of found) assert.isTrue(objects.has(`payloads/${name}`))
    }).pipe(Effect.scoped))

  it("its tables are those that have payloads", () => {
    const schema = Docs.read("prisma/schema.prisma")
    const [, list = ""] = /likewise for `executions`([\s\S]*?)\n## /.exec(Docs.read("docs/payloads.md")) ?? []
    for (const [, table] of list.matchAll(/`(\w+)`/g)) assert.include(schema, `@@map("${table}")`)
  })
})
