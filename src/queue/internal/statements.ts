/**
 * Calls of the stored functions of queues, outbox and tasks: one statement each, which is its own transaction.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { Database } from "../../prisma/Database.ts"
import { Prisma } from "../../prisma/internal/client.ts"
import { lockTimeoutMs } from "../../prisma/internal/driver/statements.ts"
import { bigint } from "../../prisma/internal/rows.ts"
import * as statementSpans from "../../prisma/internal/statementSpans.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"

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
  /**
   * The statement commits without waiting for the disk: only for leases. What a crash of the server undoes is a lease, and a
   * lease that is lost is one that ran out. Defaults to false.
   */
  readonly isUnflushed?: boolean | undefined
}

export interface Statements {
  /** The rows of `dx_…(arguments, now)`. At least one argument. */
  readonly rows: <Row>(
    operation: string,
    name: string,
    args: readonly [Prisma.Sql, ...ReadonlyArray<Prisma.Sql>],
    settings?: Settings
  ) => Effect.Effect<ReadonlyArray<Row>, ProviderError>
  /**
   * As `rows`, in few values: many small rows cost the server and this process less so. Numbers are below 2^53, and there is
   * no type that JSON does not have.
   */
  readonly collected: <Row>(
    operation: string,
    name: string,
    args: readonly [Prisma.Sql, ...ReadonlyArray<Prisma.Sql>],
    settings?: Settings
  ) => Effect.Effect<ReadonlyArray<Row>, ProviderError>
  /** As `rows`, for a function with one result. */
  readonly answer: <A>(
    operation: string,
    name: string,
    args: readonly [Prisma.Sql, ...ReadonlyArray<Prisma.Sql>],
    settings?: Settings
  ) => Effect.Effect<A, ProviderError>
}

export const make = ({ address, query, schema, schemaSql }: Database["Service"], { clock }: Options): Statements => {
  const spans = statementSpans.make({ address, schema })
  const nowMs: Effect.Effect<number | null> = clock === "effect"
    ? Effect.map(Clock.currentTimeMillis, Math.floor)
    : Effect.succeed(null)

  const call = (
    name: string,
    [first, ...others]: readonly [Prisma.Sql, ...ReadonlyArray<Prisma.Sql>],
    settings: Settings,
    now: number | null
  ) => {
    const args = Prisma.join([withSettings(first, settings), ...others, bigint(now)])
    return Prisma.sql`${schemaSql}.${Prisma.raw(name)}(${args})`
  }

  return {
    rows: <Row>(
      operation: string,
      name: string,
      args: readonly [Prisma.Sql, ...ReadonlyArray<Prisma.Sql>],
      settings: Settings = {}
    ) =>
      Effect.flatMap(nowMs, (now) =>
        spans.statement(
          operation,
          settings.items ?? 1,
          query<Row>(operation, Prisma.sql`SELECT * FROM ${call(name, args, settings, now)}`)
        )),
    collected: <Row>(
      operation: string,
      name: string,
      args: readonly [Prisma.Sql, ...ReadonlyArray<Prisma.Sql>],
      settings: Settings = {}
    ) =>
      Effect.flatMap(nowMs, (now) =>
        Effect.map(
          spans.statement(
            operation,
            settings.items ?? 1,
            query<{ readonly answer: ReadonlyArray<Row> }>(
              operation,
              Prisma.sql`
                SELECT json_agg(one ORDER BY position) AS answer
                FROM (
                  SELECT one, row_number() OVER () AS position, (row_number() OVER () - 1) / ${rowsPerValue}::int AS part
                  FROM ${call(name, args, settings, now)} AS one
                ) AS rows
                GROUP BY part
                ORDER BY part`
            )
          ),
          (rows) => rows.flatMap(({ answer }) => answer)
        )),
    answer: <A>(
      operation: string,
      name: string,
      args: readonly [Prisma.Sql, ...ReadonlyArray<Prisma.Sql>],
      settings: Settings = {}
    ) =>
      Effect.flatMap(nowMs, (now) =>
        Effect.map(
          spans.statement(
            operation,
            settings.items ?? 1,
            query<{ readonly answer: A }>(
              operation,
              Prisma.sql`SELECT ${call(name, args, settings, now)} AS answer`
            )
          ),
          (rows) => rows[0]!.answer
        ))
  }
}

// internal

/**
 * A text of JavaScript has at most 512 MiB, and `pg` throws in its socket's handler beyond that. A payload or result has at
 * most 4 MiB, twice that as a text in JSON.
 */
const rowsPerValue = 32

/** Arguments are evaluated before the call, and the settings end with the statement. */
const withSettings = (argument: Prisma.Sql, { isQuiet, isUnflushed, items = 1 }: Settings) => {
  const wait = String(items > 1 ? lockTimeoutMs.set : lockTimeoutMs.alone)
  const settings = [
    Prisma.sql`set_config(
      'lock_timeout',
      COALESCE(NULLIF(current_setting('lock_timeout'), '0'), ${wait}::text),
      true
    ) IS NOT NULL`,
    ...(isQuiet === true ? [Prisma.sql`set_config('duroxide.quiet', 'on', true) IS NOT NULL`] : []),
    ...(isUnflushed === true ? [Prisma.sql`set_config('synchronous_commit', 'off', true) IS NOT NULL`] : [])
  ]
  return Prisma.sql`CASE WHEN ${Prisma.join(settings, " AND ")} THEN ${argument} END`
}
