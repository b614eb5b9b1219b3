/**
 * Databases with an outbox, for its tests.
 */
import { Outbox } from "duroxide-prisma/outbox"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as References from "effect/References"
import type { CountingQueue } from "../../queue/utils/countingQueue.ts"
import * as PgServer from "../../utils/PgServer.ts"
import { waitUntil } from "../../utils/waitUntil.ts"

export interface Row {
  readonly id: string
  readonly queue: string
  readonly payload: { readonly kind: string; readonly n?: number }
  readonly attempts: number
  readonly last_error: string | null
  readonly is_sent: boolean
  readonly is_leased: boolean
  /** From the last change of the row to the time of the next try, roughly; negative for what is due. */
  readonly due_in_ms: number
}

/** A fresh database, and what is in its outbox. */
export const open = Effect.gen(function*() {
  const test = yield* PgServer.database
  const rows = test.sql<Row>(
    `SELECT id::text, queue, payload, attempts, last_error, sent_at IS NOT NULL AS is_sent, lease_token IS NOT NULL AS is_leased,
            (extract(epoch FROM deliver_at - clock_timestamp()) * 1000)::float8 AS due_in_ms
     FROM queue_outbox ORDER BY queue_outbox.id`
  )
  const unsent = Effect.map(
    test.sql<{ count: number }>("SELECT count(*)::int AS count FROM queue_outbox WHERE sent_at IS NULL"),
    ([row]) => row!.count
  )
  return {
    ...test,
    rows,
    unsent,
    /** Writes many messages of the queue `jobs` in one statement; `n` counts from 1. */
    fill: (count: number, queue = "jobs") =>
      Effect.asVoid(test.sql(
        `SELECT dx_add_to_outbox(jsonb_agg(jsonb_build_object(
           'queue', $2::text, 'payload', jsonb_build_object('kind', 'job', 'n', n)
         ) ORDER BY n)) FROM generate_series(1, $1::int) AS n`,
        [count, queue]
      )),
    untilAllSent: waitUntil(Effect.map(unsent, (count) => count === 0))
  }
})

export type Open = Effect.Success<typeof open>

/** One process: the outbox on a pool of its own. */
export const process = (url: string, options?: Partial<PrismaProvider.DatabaseOptions>) =>
  Outbox.layer.pipe(Layer.provideMerge(PrismaProvider.layerDatabase({ url, migrate: "none", ...options })))

/** One process that publishes. */
export const publishing = (
  url: string,
  queue: CountingQueue,
  options?: Outbox.PublisherOptions,
  database?: Partial<PrismaProvider.DatabaseOptions>
) =>
  Layer.provideMerge(
    Outbox.publisher(options).pipe(Layer.provide(queue.publisher)),
    process(url, database)
  )

export interface Line {
  readonly level: string
  readonly text: string
  readonly annotations: Readonly<Record<string, unknown>>
}

/** Collects the lines of the log, from Debug. */
export const logged = () => {
  const lines: Array<Line> = []
  const logger = Logger.layer([
    Logger.make(({ fiber, logLevel, message }) => {
      lines.push({
        level: logLevel,
        text: String(message),
        annotations: fiber.getRef(References.CurrentLogAnnotations)
      })
    })
  ])
  return {
    lines,
    into: <A, E, R>(effect: Effect.Effect<A, E, R>) =>
      effect.pipe(Effect.provide(logger), Effect.provideService(References.MinimumLogLevel, "Debug"))
  }
}
