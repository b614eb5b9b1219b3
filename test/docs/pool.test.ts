/**
 * The example of docs/postgresql.md, A pool of your own.
 */
import { assert, it } from "@effect/vitest"
import { PrismaPg } from "@prisma/adapter-pg"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { Pool } from "pg"
import { PrismaClient } from "../../src/prisma/generated/client.js"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const open = (process: { readonly env: { readonly DATABASE_URL: string } }) => {
  const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 20 })

  const prisma = new PrismaClient({ adapter: new PrismaPg(pool) })

  const ProviderLive = PrismaProvider.layer({ pool, schema: "duroxide" })
  return { pool, prisma, ProviderLive }
}

it("docs/postgresql.md, A pool of your own: its example is the one tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/pool.test.ts"))
  const [example] = Docs.blocks(Docs.section("docs/postgresql.md", "A pool of your own"), "ts")
  assert.include(here, Docs.withoutIndentation(example!.code))
})

it.live("docs/postgresql.md, A pool of your own: both use its connections", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.emptyDatabase
    yield* Effect.addFinalizer(() => sql("DROP SCHEMA IF EXISTS duroxide CASCADE"))
    const { pool, prisma, ProviderLive } = open({ env: { DATABASE_URL: url.replace(/\?.*$/, "") } })
    yield* Effect.addFinalizer(() => Effect.promise(() => pool.on("error", () => {}).end()))
    yield* Effect.gen(function*() {
      assert.deepStrictEqual(yield* (yield* Admin.Admin).listProcesses, [])
      assert.deepStrictEqual(yield* Effect.promise(() => prisma.$queryRaw`SELECT 1 AS one`), [{ one: 1 }])
      assert.isAtLeast(pool.totalCount, 1)
    }).pipe(Effect.provide(Layer.merge(ProviderLive, Logger.layer([]))))
    yield* Effect.promise(() => prisma.$disconnect())
  }).pipe(Effect.scoped))
