/**
 * How a stored function is called: with the settings of its statement and its span.
 *
 * Each call is one statement, which is its own transaction, or part of the one that an application has begun. How often
 * a statement is sent is decided above, by the tables of operations and `provider/shared/statement.ts`.
 *
 * **Spans**
 *
 * OpenTelemetry's conventions for databases describe them. A statement has a span if it runs for a call, a turn or an
 * activity whose span is sampled, or if it claims one. Polls that find nothing, renewals and sweeps have none.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as References from "effect/References"
import * as tracing from "../../model/shared/tracing.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { Database } from "../Database.ts"
import { Prisma } from "./client.ts"
import { bigint } from "./rows.ts"
import * as statementSettings from "./settings.ts"

/** Sends statements. Without an address, on a connection of the application. */
export type Connection =
  & Pick<Database["Service"], "query" | "schemaSql">
  & Partial<Pick<Database["Service"], "address" | "schema">>

export interface Options {
  /** The clock that decides what is visible and which lease is live. Defaults to `database`. */
  readonly clock?: "database" | "effect" | undefined
  /** Default of `isQuiet` for statements that write. */
  readonly isQuiet?: boolean | undefined
}

/** What a statement does beside its call. On a connection of the application it changes no setting. */
export interface Settings {
  /**
   * `write`: it waits only shortly for a row that another transaction holds. `claim`: its span belongs to what it
   * claims. `plain`: neither. Defaults to `write`.
   */
  readonly kind?: "write" | "claim" | "plain" | undefined
  /** Calls that share the statement: how long it waits for a row that another transaction holds. Defaults to 1. */
  readonly items?: number | undefined
  /** This process announces what it stores, after the commit: the function does not notify. Defaults to false. */
  readonly isQuiet?: boolean | undefined
  /** The statement commits without waiting for the disk: only for leases. Defaults to `isRenewal`. */
  readonly isUnflushed?: boolean | undefined
  /** The statement keeps what this process holds, and may be sent twice. Defaults to false. */
  readonly isRenewal?: boolean | undefined
  /** The function takes no time. Defaults to false. */
  readonly isTimeless?: boolean | undefined
}

/** Settings of a statement that neither claims nor waits only shortly for locks. */
export const plain: Settings = { kind: "plain" }

/** Settings of a `plain` statement whose function takes no time. */
export const timeless: Settings = { kind: "plain", isTimeless: true }

/** A call of a stored function; the time of the call is added to the arguments. */
type Call = readonly [
  operation: string,
  name: string,
  args: ReadonlyArray<Prisma.Sql>,
  settings?: Settings
]

export interface Statements {
  /** The rows of `dx_…(arguments, now)`. */
  readonly rows: <Row>(...call: Call) => Effect.Effect<ReadonlyArray<Row>, ProviderError>
  /**
   * Rows packed into few JSON values, which cost the server and this process less. Numbers must be below 2^53, and all
   * types ones that JSON has. On a connection of the application it is `rows`.
   */
  readonly collected: <Row>(...call: Call) => Effect.Effect<ReadonlyArray<Row>, ProviderError>
  /** The result of a function that returns one. */
  readonly answer: <A>(...call: Call) => Effect.Effect<A, ProviderError>
}

export const make = ({ address, query, schema, schemaSql }: Connection, options: Options = {}): Statements => {
  const isOurs = address !== undefined && schema !== undefined
  const spans = makeSpans(isOurs ? placeOf(address, schema) : {})
  const prefix = schemaSql.sql

  /** Sends the statement that has the call of the function between these texts. */
  const send = <Row>([operation, name, args, settings = {}]: Call, before: string, after = "") =>
    Effect.withFiber<ReadonlyArray<Row>, ProviderError>((fiber) => {
      const all = [...args]
      if (settings.isTimeless !== true) {
        all.push(bigint(
          options.clock === "effect" ? Math.floor(fiber.getRef(Clock.Clock).currentTimeMillisUnsafe()) : null
        ))
      }
      // An argument is evaluated before the call.
      if (isOurs) all[0] = statementSettings.during(settingsOf(settings, options), all[0]!)
      const sent = query<Row>(
        operation,
        Prisma.join(all, ",", `${before}${prefix}.${name}(`, `)${after}`),
        settings.isRenewal
      )
      return settings.kind === "claim"
        ? spans.claim(fiber, operation, name, sent)
        : spans.statement(fiber, operation, name, settings.items ?? 1, sent)
    })

  const rows: Statements["rows"] = (...call) => send(call, `SELECT *${isOurs ? columnOf(call) : ""} FROM `)

  return {
    rows,

    collected: !isOurs ? rows : <Row>(...call: Call) =>
      Effect.map(
        send<{ readonly answer: ReadonlyArray<Row> }>(
          call,
          `SELECT json_agg(one ORDER BY position) AS answer${columnOf(call)}
          FROM (
            SELECT one, row_number() OVER () AS position, (row_number() OVER () - 1) / ${rowsPerValue} AS part
            FROM `,
          ` AS one
          ) AS rows
          GROUP BY part
          ORDER BY part`
        ),
        (rows) => rows.flatMap(({ answer }) => answer)
      ),

    answer: <A>(...call: Call) =>
      Effect.map(
        send<{ readonly answer: A }>(call, "SELECT ", ` AS answer${isOurs ? columnOf(call) : ""}`),
        (rows) => rows[0]!.answer
      )
  }
}

// -- settings --------------------------------------------------------------------------------------

/**
 * JavaScript's strings end at 512 MiB; beyond that `pg` throws in its socket's handler. A payload or result has at most
 * 4 MiB, and at most twice that when escaped in JSON.
 */
const rowsPerValue = 32

/** What a statement selects beside its answer. */
const columnOf = ([, , , { kind = "write" } = {}]: Call) =>
  kind === "write" ? `, ${statementSettings.commitsPatiently}` : ""

const settingsOf = (call: Settings, options: Options) => {
  const { isQuiet, isRenewal, isUnflushed = isRenewal, items = 1, kind = "write" } = call
  const settings: Array<Prisma.Sql> = []
  if (kind === "write") settings.push(statementSettings.lockTimeout(items))
  if (isQuiet ?? (kind === "write" && options.isQuiet === true)) settings.push(statementSettings.quiet)
  if (isUnflushed === true) settings.push(statementSettings.unflushed)
  return settings
}

// -- spans -----------------------------------------------------------------------------------------

type AnyFiber = Fiber.Fiber<unknown, unknown>

/** What is the same for all statements of an operation. */
interface Prepared {
  readonly name: string
  readonly attributes: tracing.Attributes
}

const makeSpans = (place: tracing.Attributes) => {
  const prepared = new Map<string, Prepared>()
  const of = (operation: string, name: string): Prepared => {
    let known = prepared.get(operation)
    if (known === undefined) {
      known = {
        name: `PrismaDriver.${operation}`,
        attributes: {
          "db.system.name": "postgresql",
          ...place,
          "db.operation.name": "SELECT",
          "db.stored_procedure.name": name,
          "db.query.summary": `SELECT ${name}`
        }
      }
      prepared.set(operation, known)
    }
    return known
  }

  return {
    /** `items`: the number of calls that share the statement. */
    statement: <A>(
      fiber: AnyFiber,
      operation: string,
      name: string,
      items: number,
      sent: Effect.Effect<A, ProviderError>
    ): Effect.Effect<A, ProviderError> => {
      if (!tracing.isOn(fiber) || fiber.cache.span?.sampled !== true) return sent
      const { attributes, name: spanName } = of(operation, name)
      const options = {
        kind: "client",
        attributes: items > 1 ? { ...attributes, "db.operation.batch.size": items } : attributes
      } as const
      return Effect.useSpan(spanName, options, (span) => {
        // The callers in other traces find the statement, too.
        const link = { span, attributes: {} }
        for (const { span: caller } of fiber.getRef(References.TracerSpanLinks)) {
          if (caller._tag === "Span") caller.addLinks([link])
        }
        const described = Effect.tapError(
          sent,
          (error) => Effect.sync(() => tracing.setAttributes(span, describe(error)))
        )
        return Effect.onExit(described, (exit) => tracing.end(span, exit))
      })
    },

    claim: <Row>(
      fiber: AnyFiber,
      operation: string,
      name: string,
      sent: Effect.Effect<ReadonlyArray<Row>, ProviderError>
    ): Effect.Effect<ReadonlyArray<Row>, ProviderError> => {
      const announce = fiber.getRef(tracing.ClaimSpans)
      if (announce === undefined || !tracing.isOn(fiber)) return sent
      const clock = fiber.getRef(Clock.Clock)
      const startTime = clock.currentTimeNanosUnsafe()
      return Effect.tap(sent, ({ length }) =>
        Effect.sync(() => {
          if (length === 0) return
          const endTime = clock.currentTimeNanosUnsafe()
          const { attributes, name: spanName } = of(operation, name)
          announce((parent) =>
            tracing.past(fiber, spanName, {
              parent,
              startTime,
              endTime,
              attributes: { ...attributes, "db.response.returned_rows": length }
            })
          )
        }))
    }
  }
}

/** `address` is `host:port/database`. */
const placeOf = (address: string, schema: string): tracing.Attributes => {
  const [, host = address, port, database] = /^(.*):(\d+)\/(.*)$/.exec(address) ?? []
  return {
    "server.address": host,
    ...(port !== undefined && { "server.port": Number(port) }),
    "db.namespace": database === undefined ? schema : `${database}|${schema}`
  }
}

const describe = ({ reason }: ProviderError): tracing.Attributes => ({
  "error.type": reason._tag,
  ...("sqlState" in reason && typeof reason.sqlState === "string" && { "db.response.status_code": reason.sqlState })
})
