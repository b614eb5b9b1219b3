/**
 * Calls of the stored functions of queues, outbox and tasks: one statement each, which is its own transaction.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { ProviderError } from "../../../provider/ProviderError.ts"
import type { Database } from "../../Database.ts"
import { Prisma } from "../client.ts"
import { bigint } from "../rows.ts"
import * as statementSettings from "../settings.ts"
import * as statementSpans from "../statementSpans.ts"

export interface Options {
  /** The clock that decides what is visible and which lease is live. Defaults to `database`. */
  readonly clock?: "database" | "effect" | undefined
}

/** What a statement does beside its call. */
export interface Settings {
  /** Calls that share the statement: how long it waits for a row that another transaction holds. Defaults to 1. */
  readonly items?: number | undefined
  /** This process announces what it stores, after the commit: the function does not notify. Defaults to false. */
  readonly isQuiet?: boolean | undefined
  /** The statement commits without waiting for the disk: only for leases. Defaults to false. */
  readonly isUnflushed?: boolean | undefined
}

/** Arguments: at least one, followed by the time of the call, which is added. */
type Call = readonly [
  operation: string,
  name: string,
  args: readonly [Prisma.Sql, ...ReadonlyArray<Prisma.Sql>],
  settings?: Settings
]

export interface Statements {
  /** The rows of `dx_…(arguments, now)`. */
  readonly rows: <Row>(...call: Call) => Effect.Effect<ReadonlyArray<Row>, ProviderError>
  /**
   * As `rows`, in few values: many small rows cost the server and this process less so. Numbers are below 2^53, and there is
   * no type that JSON does not have.
   */
  readonly collected: <Row>(...call: Call) => Effect.Effect<ReadonlyArray<Row>, ProviderError>
  /** As `rows`, for a function with one result. */
  readonly answer: <A>(...call: Call) => Effect.Effect<A, ProviderError>
}

export const make = ({ address, query, schema, schemaSql }: Database["Service"], { clock }: Options): Statements => {
  const spans = statementSpans.make({ address, schema })
  const nowMs: Effect.Effect<number | null> = clock === "effect"
    ? Effect.map(Clock.currentTimeMillis, Math.floor)
    : Effect.succeed(null)

  /** Sends the statement that `select` makes of the call of the function. */
  const send = <Row>(
    [operation, name, [first, ...others], settings = {}]: Call,
    select: (call: Prisma.Sql) => Prisma.Sql
  ) =>
    Effect.flatMap(nowMs, (now) => {
      const args = Prisma.join([withSettings(first, settings), ...others, bigint(now)])
      const call = Prisma.sql`${schemaSql}.${Prisma.raw(name)}(${args})`
      return spans.statement(operation, settings.items ?? 1, query<Row>(operation, select(call)))
    })

  return {
    rows: <Row>(...call: Call) => send<Row>(call, (call) => Prisma.sql`SELECT * FROM ${call}`),

    collected: <Row>(...call: Call) =>
      Effect.map(
        send<{ readonly answer: ReadonlyArray<Row> }>(
          call,
          (call) =>
            Prisma.sql`
              SELECT json_agg(one ORDER BY position) AS answer
              FROM (
                SELECT one, row_number() OVER () AS position, (row_number() OVER () - 1) / ${rowsPerValue}::int AS part
                FROM ${call} AS one
              ) AS rows
              GROUP BY part
              ORDER BY part`
        ),
        (rows) => rows.flatMap(({ answer }) => answer)
      ),

    answer: <A>(...call: Call) =>
      Effect.map(
        send<{ readonly answer: A }>(call, (call) => Prisma.sql`SELECT ${call} AS answer`),
        (rows) => rows[0]!.answer
      )
  }
}

// internal

/**
 * A text of JavaScript has at most 512 MiB, and `pg` throws in its socket's handler beyond that. A payload or result has at
 * most 4 MiB, twice that as a text in JSON.
 */
const rowsPerValue = 32

/** An argument is evaluated before the call. */
const withSettings = (argument: Prisma.Sql, { isQuiet, isUnflushed, items = 1 }: Settings) =>
  statementSettings.during([
    statementSettings.lockTimeout(statementSettings.lockTimeoutMs, items),
    ...(isQuiet === true ? [statementSettings.quiet] : []),
    ...(isUnflushed === true ? [statementSettings.unflushed] : [])
  ], argument)
