/**
 * Processes that share a schema and cannot LISTEN, such as those behind a pooler, wake each other by messages.
 *
 * Each process that listens leases one of a few declared queues, its inbox, and empties it first. Hints for the others
 * are rows of the outbox, one for each inbox that is leased; a publisher sends them. They may be lost, late or doubled,
 * as all hints may. No row stays once it is sent, and none is sent or read that is older than five minutes or than the
 * lease.
 *
 * @since 0.2.0
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { InBackground } from "../model/shared/inBackground.ts"
import { ours } from "../model/shared/logging.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"
import * as trouble from "../model/shared/trouble.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import * as Message from "../queue/Message.ts"
import { Queue } from "../queue/Queue.ts"
import type { Received } from "../queue/Queue.ts"
import { InvalidInput } from "../queue/QueueError.ts"
import type { QueueError } from "../queue/QueueError.ts"
import * as check from "../queue/shared/check.ts"
import { Notifier, NotifierError } from "../waking/Notifier.ts"
import type { Listener } from "../waking/Notifier.ts"
import { Database } from "./Database.ts"
import * as Channels from "./internal/channels.ts"
import { Prisma } from "./internal/client.ts"

/**
 * Options of the notifier.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options {
  /**
   * Names of queues that carry only hints, the same in all processes; the `Queue` must have them. As many as processes
   * listen at once: a process that finds none free polls, with a warning, and looks again each minute.
   */
  readonly inboxes: ReadonlyArray<string>
}

/**
 * Hints on their way to one process, as notifications of PostgreSQL have them.
 *
 * @category kinds
 * @since 0.2.0
 */
export const HintMessage = Message.make("hint", {
  /** When they were announced, by the clock of the database: milliseconds since the Unix epoch. */
  announced_at_ms: Schema.Number,
  notifications: Schema.Array(Schema.Struct({ channel: Schema.String, payload: Schema.String }))
})

/**
 * The notifier of the schema of `Database`. One of the processes must run `Outbox.publisher` on the same `Queue`.
 *
 * Fails with `QueueError`, reason `InvalidInput`, if `inboxes` is empty or contains a name that a queue cannot have.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make = Effect.fnUntraced(
  function*({ inboxes }: Options): Effect.fn.Return<Notifier["Service"], QueueError, Database | Queue> {
    const problem = inboxes.length === 0 ? "it is empty" : inboxes.map(check.queueName).find((one) => one !== undefined)
    if (problem !== undefined) {
      return yield* check.fail("open", "", new InvalidInput({ field: "inboxes", problem }))
    }
    const queue = yield* Queue
    const clock = yield* Clock.Clock
    const leases = makeLeases(yield* Database, inboxes, clock)
    const channels = Channels.channelsOf((yield* Database).schema)
    const sender = Channels.makeSender()
    let inbox = ""

    const deliver = (listener: Listener, isOfUse: (announcedAtMs: number) => boolean, { payload }: Received) =>
      HintMessage.decode(payload).pipe(
        Effect.map(({ announced_at_ms, notifications }) => {
          if (!isOfUse(announced_at_ms)) return
          for (const notification of notifications) {
            for (const received of Channels.decode(channels, notification)) {
              if (received.sender !== sender) listener.receive(received)
            }
          }
        }),
        Effect.ignore
      )

    /** Receives until interrupted. While the queue fails, this process learns of no hint. */
    const receive = (listener: Listener, inbox: string, isOfUse: (announcedAtMs: number) => boolean) =>
      Effect.suspend(() => {
        const outage = trouble.make(clock)
        return queue.receive(inbox, { maxMessages: 100, visibilityTimeout: "30 seconds", wait: "20 seconds" }).pipe(
          Effect.tap((messages) =>
            Effect.suspend(() => {
              if (outage.ended() !== undefined) listener.connected()
              return Effect.forEach(
                messages,
                (message) =>
                  Effect.andThen(deliver(listener, isOfUse, message), Effect.ignore(queue.ack(inbox, message.receipt))),
                {
                  concurrency: "unbounded",
                  discard: true
                }
              )
            })
          ),
          Effect.catch((error) =>
            Effect.suspend(() => {
              const failures = outage.failed()
              const isNew = failures === 0
              if (isNew) listener.disconnected(error.message)
              const pause = Effect.sleep(trouble.growingMs(leastPauseMs, mostPauseMs, failures))
              return isNew
                ? Effect.andThen(
                  warn(Effect.logWarning("QueueNotifier: hints cannot be received; it tries again"), error.message),
                  pause
                )
                : pause
            })
          ),
          Effect.forever
        )
      })

    /** Ends when the lease is lost. */
    const renew = (lease: Lease, renewed: (lease: Lease) => void) =>
      Effect.suspend(() => {
        let held = lease
        return Effect.delay(
          Effect.suspend(() => leases.renew(held)),
          betweenRenewals
        ).pipe(
          Effect.map((newest) => {
            if (newest !== undefined) renewed(held = newest)
            return newest !== undefined
          }),
          // While the database does not answer, nothing is announced either.
          Effect.catch(() => Effect.succeed(true)),
          Effect.repeat({ while: (isHeld) => isHeld }),
          Effect.onExit(() => Effect.ignore(Effect.timeoutOption(leases.free(held), "2 seconds")))
        )
      })

    const session = (listener: Listener) =>
      Effect.suspend(() => {
        const shortage = trouble.make(clock)
        return leases.take.pipe(
          Effect.catch(({ message }) => Effect.succeed(message)),
          Effect.flatMap((lease) => {
            if (typeof lease === "string") {
              const isNew = shortage.failed() === 0
              if (isNew) listener.disconnected(lease)
              return Effect.andThen(
                isNew
                  ? warn(Effect.logWarning("QueueNotifier: this process has no inbox, so it polls"), lease)
                  : Effect.void,
                Effect.sleep(betweenRenewals)
              )
            }
            shortage.ended()
            inbox = lease.queue
            let newest = lease
            // With each renewal this follows the clock of the database, also where it steps.
            const isOfUse = (announcedAtMs: number) => {
              const nowMs = monotonicMs(clock)
              const ageMs = newest.seenMs + nowMs - newest.heardMs - announcedAtMs
              return ageMs <= Math.min(nowMs - lease.heardMs, expiresMs)
            }
            listener.connected()
            return Effect.raceFirst(
              renew(lease, (renewed) => void (newest = renewed)),
              receive(listener, lease.queue, isOfUse)
            ).pipe(
              Effect.andThen(Effect.sync(() => listener.disconnected("the lease of the inbox was lost"))),
              Effect.ensuring(Effect.sync(() => void (inbox = "")))
            )
          }),
          Effect.forever
        )
      })

    return Notifier.of({
      name: "queue",
      announceEvery: "100 millis",
      listen: (listener) =>
        Effect.asVoid(Effect.forkScoped(Effect.provideService(session(listener), InBackground, true))),
      announce: (hints) => {
        const notifications = Channels.encode(channels, sender, hints)
        return notifications.length === 0 ? Effect.void : leases.announce(messagesOf(notifications), inbox)
      }
    })
  }
)

/**
 * Provides the notifier. `PrismaProvider.layer` and `FromDriver.layer` use the one in their context.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = (options: Options): Layer.Layer<Notifier, QueueError, Database | Queue> =>
  Layer.effect(Notifier, make(options))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const betweenRenewals = Duration.minutes(1)

/** Each process has looked by itself since: by default, `fallbackPollInterval`. */
const expiresMs = 300_000

const leastPauseMs = 1000
const mostPauseMs = 30_000

const warn = (line: Effect.Effect<void>, error: string) => line.pipe(ours({ error }))

/** A notification has up to 8,000 bytes; a message takes 262,144. */
const mostOfMessage = 30

const messagesOf = (notifications: ReadonlyArray<Channels.Notification>) =>
  Array.from({ length: Math.ceil(notifications.length / mostOfMessage) }, (_, i) => ({
    kind: HintMessage.kind,
    notifications: notifications.slice(i * mostOfMessage, (i + 1) * mostOfMessage)
  }))

interface Lease {
  readonly queue: string
  /**
   * Time of the newest renewal, exactly as stored: another process that has taken the inbox since has written another.
   */
  readonly seenAt: string
  /** `seenAt` in milliseconds since the Unix epoch. */
  readonly seenMs: number
  /** Time at which this process learned of it, by its monotonic clock. */
  readonly heardMs: number
}

type LeaseRow = Omit<Lease, "heardMs">

/** The inboxes in use, in the table `queue_listeners`. */
const makeLeases = (
  { query, schemaSql }: Database["Service"],
  inboxes: ReadonlyArray<string>,
  clock: Clock.Clock
) => {
  const listeners = Prisma.sql`${schemaSql}.queue_listeners`
  const live = Prisma.sql`seen_at > clock_timestamp() - interval '5 minutes'`
  const failed = ({ message }: ProviderError) => new NotifierError({ problem: message })

  const lease = Prisma.sql`queue, seen_at::text AS "seenAt",
    floor(extract(epoch FROM seen_at) * 1000)::float8 AS "seenMs"`
  const heard = ([row]: ReadonlyArray<LeaseRow>): Lease | undefined =>
    row === undefined ? undefined : { ...row, heardMs: monotonicMs(clock) }

  const takeOne = Effect.map(
    query<LeaseRow>(
      "leaseInbox",
      Prisma.sql`INSERT INTO ${listeners} AS taken (queue, seen_at)
      SELECT queue, clock_timestamp() FROM unnest(${inboxes}::text[]) AS one (queue)
      WHERE NOT EXISTS (SELECT FROM ${listeners} AS other WHERE other.queue = one.queue AND other.${live})
      ORDER BY random() LIMIT 1
      ON CONFLICT (queue) DO UPDATE SET seen_at = excluded.seen_at WHERE NOT taken.${live}
      RETURNING ${lease}`
    ),
    heard
  )

  /** Deletes what the last owner has not read; where it cannot, or in SQS, it lies there until it is received. */
  const empty = (queue: string) =>
    Effect.ignore(query(
      "emptyInbox",
      Prisma.sql`WITH unsent AS (
        DELETE FROM ${schemaSql}.queue_outbox WHERE id = ANY (ARRAY(
          SELECT id FROM ${schemaSql}.queue_outbox WHERE sent_at IS NULL AND queue = ${queue} FOR UPDATE SKIP LOCKED
        ))
      )
      DELETE FROM ${schemaSql}.queue_messages WHERE id = ANY (ARRAY(
        SELECT id FROM ${schemaSql}.queue_messages WHERE queue = ${queue} FOR UPDATE SKIP LOCKED
      ))`
    ))

  return {
    /** A free inbox, or why none is free. Processes that start together may choose the same one, so it tries again. */
    take: Effect.gen(function*() {
      for (let tries = 0; tries < 5; tries++) {
        const taken = yield* takeOne
        if (taken === undefined) continue
        yield* empty(taken.queue)
        return taken
      }
      return `all of the ${inboxes.length} inboxes are in use; declare more`
    }),
    /** Undefined if the lease was lost. */
    renew: ({ queue, seenAt }: Lease): Effect.Effect<Lease | undefined, ProviderError> =>
      Effect.map(
        query<LeaseRow>(
          "renewInbox",
          Prisma.sql`UPDATE ${listeners} SET seen_at = clock_timestamp()
            WHERE queue = ${queue} AND seen_at = ${seenAt}::text::timestamptz
            RETURNING ${lease}`
        ),
        heard
      ),
    free: ({ queue, seenAt }: Lease) =>
      query(
        "freeInbox",
        Prisma.sql`DELETE FROM ${listeners} WHERE queue = ${queue} AND seen_at = ${seenAt}::text::timestamptz`
      ),
    /** One outbox row for each message and inbox in use, but this process's own. */
    announce: (messages: ReadonlyArray<object>, own: string) =>
      Effect.asVoid(Effect.mapError(
        query(
          "announceByQueue",
          Prisma.sql`SELECT ${schemaSql}.dx_add_to_outbox((
            SELECT jsonb_agg(jsonb_build_object(
              'queue', queue,
              'payload', payload || jsonb_build_object('announced_at_ms', now_ms),
              'expires_ms', ${expiresMs}::integer
            ))
            FROM floor(extract(epoch FROM clock_timestamp()) * 1000) AS now_ms,
              ${listeners}, jsonb_array_elements(${JSON.stringify(messages)}::jsonb) AS one (payload)
            WHERE queue <> ${own} AND ${live}
          ))`
        ),
        failed
      ))
  }
}
