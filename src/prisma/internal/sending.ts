/**
 * Sends statements through the pool.
 *
 * Prisma passes arguments to its adapter as JSON: large texts would be escaped, copied and parsed, and `Late` values
 * computed before there is a connection. So a key stands for each `Texts` and `Late` value on the way to the adapter.
 */
import { PrismaPg } from "@prisma/adapter-pg"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import { ProviderError } from "../../provider/ProviderError.ts"
import type { Reason } from "../../provider/ProviderError.ts"
import * as SqlFault from "../../provider/SqlFault.ts"
import type { PrismaClient } from "./client.ts"
import { Prisma } from "./client.ts"
import { Late } from "./late.ts"
import { Texts } from "./texts.ts"

/** A pool, by its client. */
export interface Pool {
  readonly adapter: TextAdapter
  readonly client: PrismaClient
}

export interface Options {
  readonly main: Pool
  /** For renewals that the pool answers late: one more connection or, of a pool of the application, another one. */
  readonly reserve: Pool
  /** What a failure is taken for while the database is open. */
  readonly whileOpen: (reason: Reason) => Reason
}

export const make = ({ main, reserve, whileOpen }: Options) => {
  const counts: Record<string, number> = {}

  const send = <Row>({ adapter, client }: Pool, operation: string, sql: Prisma.Sql) =>
    Effect.tryPromise({
      try: () => adapter.sending(sql, (sql) => client.$queryRaw<ReadonlyArray<Row>>(sql)),
      catch: (thrown) => new ProviderError({ operation, reason: whileOpen(SqlFault.classify(thrown)) })
    })

  /**
   * Uses the connection that answers first. All of the pool may be busy, or the one that it chose has lost its way to
   * the server, which shows only when the statement times out: by then locks would have run out. From a slow server
   * each renewal asks twice.
   */
  const insistently = Effect.fnUntraced(function*<Row>(operation: string, sql: Prisma.Sql) {
    const first = yield* Effect.forkChild(send<Row>(main, operation, sql))
    const answer = Fiber.join(first)
    const isSlow = Option.isNone(yield* Effect.timeoutOption(Fiber.await(first), patience))
    return yield* isSlow ? Effect.race(answer, send<Row>(reserve, operation, sql)) : answer
  })

  return {
    query: <Row>(operation: string, sql: Prisma.Sql, isRenewal = false) =>
      Effect.suspend(() => {
        counts[operation] = (counts[operation] ?? 0) + 1
        return isRenewal ? insistently<Row>(operation, sql) : send<Row>(main, operation, sql)
      }),
    statementCounts: Effect.sync(() => ({ ...counts }))
  }
}

export class TextAdapter extends PrismaPg {
  private readonly kept = new Map<string, Texts | Late>()
  private keys = 0

  constructor(...[pool, options]: ConstructorParameters<typeof PrismaPg>) {
    super(pool, options)
    // Private, so out of sight of the compiler. The adapter may have loaded another copy of `pg`. It does not know our
    // pool then, and would open one of its own, without our settings.
    Reflect.set(this, "externalPool", pool)
  }

  /** Sends the statement with keys in place of such arguments. */
  async sending<A>(statement: Prisma.Sql, send: (statement: Prisma.Sql) => Promise<A>): Promise<A> {
    const keys: Array<string> = []
    const values = statement.values.map((value) => {
      if (!(value instanceof Texts || value instanceof Late)) return value
      const key = `${keyPrefix}${++this.keys}`
      this.kept.set(key, value)
      keys.push(key)
      return key
    })
    if (keys.length === 0) return send(statement)
    try {
      return await send(new Prisma.Sql(statement.strings, values))
    } finally {
      for (const key of keys) this.kept.delete(key)
    }
  }

  override async connect(): ReturnType<PrismaPg["connect"]> {
    const adapter = withArguments(withRoutines(await super.connect()), (value) => this.argumentOf(value))
    const startTransaction = adapter.startTransaction.bind(adapter)
    adapter.startTransaction = async (level) => withArguments(await startTransaction(level))
    return adapter
  }

  private argumentOf(value: unknown) {
    const kept = typeof value === "string" && value.startsWith(keyPrefix) ? this.kept.get(value) : undefined
    return kept === undefined ? value : kept instanceof Late ? kept : kept.toPostgres()
  }
}

// internal

/** How long a renewal waits for the pool alone. */
const patience = Duration.seconds(1)

/** No other argument begins with it: PostgreSQL stores no NUL. */
const keyPrefix = "\0argument "

type Adapter = Awaited<ReturnType<PrismaPg["connect"]>>

type Query = Parameters<Adapter["queryRaw"]>[0]

/**
 * Adds to the errors of an adapter the `routine` that `pg` gives, the function of the server that failed: one SQLSTATE
 * may stand for different errors, and messages have the language of the server.
 */
const withRoutines = (adapter: Adapter): Adapter => {
  // Protected, so out of sight of the compiler.
  const onError: unknown = Reflect.get(adapter, "onError")
  if (typeof onError !== "function") return adapter
  Reflect.set(adapter, "onError", (error: unknown) => {
    try {
      onError.call(adapter, error)
    } catch (thrown) {
      const cause = Predicate.hasProperty(thrown, "cause") ? thrown.cause : undefined
      if (Predicate.isObject(cause) && Predicate.hasProperty(error, "routine")) {
        Object.assign(cause, { routine: error.routine })
      }
      throw thrown
    }
  })
  return adapter
}

/** Prepares arguments for PostgreSQL, and drops them once the statement is answered. */
const withArguments = <Sender extends Pick<Adapter, "executeRaw" | "queryRaw">>(
  sender: Sender,
  argumentOf?: (value: unknown) => unknown
): Sender => {
  sender.executeRaw = sendingArguments(sender.executeRaw.bind(sender))
  sender.queryRaw = sendingArguments(sender.queryRaw.bind(sender), argumentOf)
  return sender
}

/**
 * The adapter sends points in time without their zone, which is then that of the session: they get it here.
 *
 * Prisma keeps the last hundred queries of a process for its reports. Their arguments are payloads of up to megabytes,
 * and `Late` values that refer to whole turns.
 *
 * Not async, as each statement passes here: another promise would cost it a turn of the microtask queue.
 */
const sendingArguments = <A>(
  send: (query: Query) => Promise<A>,
  argumentOf: (value: unknown) => unknown = (value) => value
) =>
(query: Query): Promise<A> => {
  const sent = { ...query }
  if (query.argTypes.some(isTime)) {
    sent.args = query.args.map((value, i) => isTime(query.argTypes[i]!) ? zoned(value) : argumentOf(value))
    sent.argTypes = query.argTypes.map((type) => isTime(type) ? { ...type, scalarType: "string" } : type)
  } else {
    sent.args = query.args.map(argumentOf)
  }
  const answer = send(sent)
  const drop = () => {
    sent.args = []
  }
  answer.then(drop, drop)
  return answer
}

const isTime = ({ dbType, scalarType }: Query["argTypes"][number]) =>
  scalarType === "datetime" && (dbType === undefined || dbType.startsWith("TIMESTAMP"))

const zoned = (value: unknown): unknown => Array.isArray(value) ? value.map(withZone) : withZone(value)

const withZone = (value: unknown) => {
  if (typeof value !== "string" && !(value instanceof Date)) return value
  const [, year, rest] = /^([+-]?\d+)(-.*)$/.exec(new Date(value).toISOString())!
  // PostgreSQL knows neither signs nor a year 0.
  const isBeforeChrist = Number(year) < 1
  const written = String(isBeforeChrist ? 1 - Number(year) : Number(year)).padStart(4, "0")
  return `${written}${rest}${isBeforeChrist ? " BC" : ""}`
}
