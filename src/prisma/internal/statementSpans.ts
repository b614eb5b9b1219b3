/**
 * Spans of statements, described by OpenTelemetry's conventions for databases.
 *
 * A statement has a span if it runs for a call, a turn or an activity whose span is sampled, or if it claims one. Polls
 * that find nothing, renewals and sweeps have none.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as References from "effect/References"
import * as tracing from "../../model/shared/tracing.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"

export interface StatementSpans {
  /** `items`: how many calls of the provider share the statement. */
  readonly statement: <A>(
    operation: string,
    items: number,
    sent: Effect.Effect<A, ProviderError>
  ) => Effect.Effect<A, ProviderError>
  readonly claim: <Row>(
    operation: string,
    sent: Effect.Effect<ReadonlyArray<Row>, ProviderError>
  ) => Effect.Effect<ReadonlyArray<Row>, ProviderError>
}

/** Where the statements are sent. */
export interface Place {
  /** `host:port/database`. */
  readonly address: string
  readonly schema: string
}

/** Without a place, where the application sends the statements. */
export const make = (place: Place | undefined): StatementSpans => {
  const shared = { "db.system.name": "postgresql", ...(place !== undefined && placeAttributes(place)) }
  const prepared = new Map<string, Prepared>()
  const of = (operation: string): Prepared => {
    let known = prepared.get(operation)
    if (known === undefined) {
      const name = `dx_${operation.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}`
      known = {
        name: `PrismaDriver.${operation}`,
        attributes: {
          ...shared,
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
    statement: (operation, items, sent) =>
      Effect.withFiber((fiber) => {
        if (!tracing.isOn(fiber) || fiber.cache.span?.sampled !== true) return sent
        const { attributes, name } = of(operation)
        const options = {
          kind: "client",
          attributes: items > 1 ? { ...attributes, "db.operation.batch.size": items } : attributes
        } as const
        return Effect.useSpan(name, options, (span) => {
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
      }),
    claim: (operation, sent) =>
      Effect.withFiber((fiber) => {
        const announce = fiber.getRef(tracing.ClaimSpans)
        if (announce === undefined || !tracing.isOn(fiber)) return sent
        const clock = fiber.getRef(Clock.Clock)
        const startTime = clock.currentTimeNanosUnsafe()
        return Effect.tap(sent, ({ length }) =>
          Effect.sync(() => {
            if (length === 0) return
            const endTime = clock.currentTimeNanosUnsafe()
            const { attributes, name } = of(operation)
            announce((parent) =>
              tracing.past(fiber, name, {
                parent,
                startTime,
                endTime,
                attributes: { ...attributes, "db.response.returned_rows": length }
              })
            )
          }))
      })
  }
}

// internal

/** The same for all statements of an operation. */
interface Prepared {
  readonly name: string
  readonly attributes: tracing.Attributes
}

const placeAttributes = ({ address, schema }: Place): tracing.Attributes => {
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
