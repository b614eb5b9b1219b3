/**
 * Transactions of applications: of `pg`, Prisma, Drizzle and Kysely, each with one way to send a statement.
 */
import { PrismaPg } from "@prisma/adapter-pg"
import { sql as fragment } from "drizzle-orm"
import { drizzle } from "drizzle-orm/node-postgres"
import type { Activity } from "duroxide-prisma"
import { Transaction } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import { CompiledQuery, Kysely, PostgresDialect } from "kysely"
import type { Transaction as KyselyTransaction } from "kysely"
import * as pg from "pg"
import { Prisma, PrismaClient } from "../../src/prisma/generated/client.js"

export interface Application<Tx> {
  readonly transactions: Transaction.Transactions<Tx>
  readonly send: (tx: Tx, sql: string) => Promise<unknown>
}

/** How many connections there are, and how long a transaction waits for one, milliseconds. */
interface Connections {
  readonly max: number
  readonly waitMs: number
}

const enough: Connections = { max: 4, waitMs: 120_000 }

/** The schema is the first of the search path. */
const poolOn = (url: string, schema: string, { max, waitMs } = enough) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const pool = new pg.Pool({
        connectionString: url.replace(/\?.*$/, ""),
        options: `-c search_path=${schema}`,
        max,
        connectionTimeoutMillis: waitMs
      })
      pool.on("error", () => {})
      return pool
    }),
    (pool) => Effect.promise(() => pool.end())
  )

export const ofPg = (url: string, schema: string, connections?: Connections) =>
  Effect.map(poolOn(url, schema, connections), (pool): Application<pg.PoolClient> => ({
    transactions: Transaction.ofPool(pool),
    send: (tx, sql) => tx.query(sql)
  }))

export const ofPrisma = (url: string, schema: string, { max, waitMs } = enough) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const adapter = new PrismaPg({
        connectionString: url.replace(/\?.*$/, ""),
        options: `-c search_path=${schema}`,
        max
      })
      return new PrismaClient({ adapter, errorFormat: "minimal" })
    }),
    (prisma) => Effect.promise(() => prisma.$disconnect())
  ).pipe(
    Effect.map((prisma): Application<Prisma.TransactionClient> => ({
      transactions: Transaction.ofPrisma(prisma, { timeout: 120_000, maxWait: waitMs }),
      send: (tx, sql) => tx.$executeRaw(Prisma.raw(sql))
    }))
  )

const drizzleOn = (pool: pg.Pool) => {
  const db = drizzle({ client: pool })
  type Tx = Parameters<Parameters<typeof db.transaction>[0]>[0]
  const transactions: Activity.Transactions<Tx> = {
    run: (body) => db.transaction(body),
    connection: (tx) => ({
      $queryRaw: async (strings, ...values) =>
        (await tx.execute(fragment(strings, ...values.map((value) => fragment.param(value))))).rows
    })
  }
  return transactions
}

export const ofDrizzle = (url: string, schema: string) =>
  Effect.map(poolOn(url, schema), (pool): Application<any> => ({
    transactions: drizzleOn(pool),
    send: (tx, sql) => tx.execute(sql)
  }))

interface Tables {}

const kyselyOn = (pool: pg.Pool) => {
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) })
  const transactions: Activity.Transactions<KyselyTransaction<Tables>> = {
    run: (body) => db.transaction().execute(body),
    connection: (tx) => ({ query: (text, values) => tx.executeQuery(CompiledQuery.raw(text, values)) })
  }
  return transactions
}

export const ofKysely = (url: string, schema: string) =>
  Effect.map(poolOn(url, schema), (pool): Application<any> => ({
    transactions: kyselyOn(pool),
    send: (tx, sql) => tx.executeQuery(CompiledQuery.raw(sql))
  }))
