/**
 * How a stored function is called: the clock, the settings that end with the statement, spans, and sets of items.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { Settled } from "../../../provider/ProviderDriver.ts"
import type { Database } from "../../Database.ts"
import { Prisma } from "../client.ts"
import { bigint, json } from "../rows.ts"
import * as settings from "../settings.ts"
import type { LockTimeoutMs } from "../settings.ts"
import * as statementSpans from "../statementSpans.ts"
import { withTexts } from "../texts.ts"
import type { Texts } from "../texts.ts"

export interface Options {
  /** Sends statements; the driver needs nothing else from a database. */
  readonly query: Database["Service"]["query"]
  readonly schemaSql: Database["Service"]["schemaSql"]
  /** Where the statements are sent, for their spans. */
  readonly place?: statementSpans.Place | undefined
  /** Absent: the clock of the database. */
  readonly clock?: "database" | "effect" | undefined
  /**
   * Longest wait for a database lock in a statement that writes items, if the connection sets no `lock_timeout`.
   * Without this option, the setting of the connection applies.
   */
  readonly lockTimeoutMs?: LockTimeoutMs
  /**
   * The process announces to others what it stores, after the commit. Otherwise the triggers notify them with the commit,
   * as they do for every other program.
   */
  readonly announces?: boolean
}

export type Statements = ReturnType<typeof make>

export const make = ({ announces, clock, lockTimeoutMs, place, query: send, schemaSql }: Options) => {
  const spans = statementSpans.make(place)
  const query = <Row>(operation: string, sql: Prisma.Sql, items = 1) =>
    spans.statement(operation, items, send<Row>(operation, sql))

  const nowMs: Effect.Effect<number | null> = clock === "effect"
    ? Effect.map(Clock.currentTimeMillis, Math.floor)
    : Effect.succeed(null)

  /** One statement: the rows of `dx_…(arguments, now)`. */
  const call = <Row>(operation: string, name: string, args: ReadonlyArray<Prisma.Sql>, sendBy = query) =>
    Effect.flatMap(nowMs, (now) =>
      sendBy<Row>(
        operation,
        Prisma.sql`SELECT * FROM ${schemaSql}.${Prisma.raw(name)}(${Prisma.join([...args, bigint(now)])})`
      ))

  /** As `call`, for rows that are claimed. */
  const claim = <Row>(operation: string, name: string, args: ReadonlyArray<Prisma.Sql>) =>
    call<Row>(
      operation,
      name,
      args,
      <R>(operation: string, sql: Prisma.Sql) => spans.claim(operation, send<R>(operation, sql))
    )

  /** One statement with its result in one column. */
  const answer = <A>(
    operation: string,
    name: string,
    args: ReadonlyArray<Prisma.Sql>,
    wrap = (call: Prisma.Sql): Prisma.Sql => call,
    items = 1
  ) =>
    Effect.flatMap(nowMs, (now) => {
      const call = wrap(Prisma.sql`${schemaSql}.${Prisma.raw(name)}(${Prisma.join([...args, bigint(now)])})`)
      return Effect.map(
        query<{ readonly answer: A }>(operation, Prisma.sql`SELECT ${call} AS answer`, items),
        (rows) => rows[0]!.answer
      )
    })

  const withSettings = (items: number) => (call: Prisma.Sql) =>
    settings.during([
      ...(lockTimeoutMs === undefined ? [] : [settings.lockTimeout(lockTimeoutMs, items)]),
      ...(announces === true ? [settings.quiet] : [])
    ], call)

  /** Evaluated before the claim begins. */
  const limitOf = (queue: "orchestrator_queue" | "worker_queue", limit: number, isThorough = false) =>
    settings.during(isThorough ? [settings.withoutMark(queue)] : [], Prisma.sql`${limit}::integer`)

  /** Only for calls of `fetch…`, `renew…` and `deferMessages`, which no transaction of an application sends. */
  const withoutFlush = (value: Prisma.Sql) => settings.during([settings.unflushed], value)

  /** As `answer`, for a statement that writes this number of items. One that another transaction holds fails it soon. */
  const write = <A>(
    operation: string,
    name: string,
    items: number,
    args: ReadonlyArray<Prisma.Sql>,
    wrap = (call: Prisma.Sql): Prisma.Sql => call
  ) => answer<A>(operation, name, args, (call) => withSettings(items)(wrap(call)), items)

  const settle =
    <Item>(operation: string, name: string, encode: (item: Item) => object, wrap?: (call: Prisma.Sql) => Prisma.Sql) =>
    (items: ReadonlyArray<Item>) =>
      items.length === 0
        ? Effect.succeed<ReadonlyArray<Settled>>([])
        : write<ReadonlyArray<Settled>>(operation, name, items.length, [json(items.map(encode))], wrap)

  const insert =
    <Item>(operation: string, name: string, encode: (texts: Texts) => (item: Item) => object) =>
    (items: ReadonlyArray<Item>) =>
      items.length === 0
        ? Effect.void
        : Effect.asVoid(
          write<bigint>(operation, name, items.length, withTexts((texts) => [json(items.map(encode(texts)))]))
        )

  return { answer, call, claim, insert, limitOf, query, schemaSql, settle, withoutFlush, write }
}

/** Limit for the messages of one claim, and for the events of one page of a history. */
export const defaultMaxBytes = 16 * 1024 * 1024
