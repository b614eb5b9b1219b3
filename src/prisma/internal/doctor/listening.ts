/**
 * Whether notifications arrive over the URLs of the processes, and who waits for them.
 */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import { randomUUID } from "node:crypto"
import { count, counted } from "../../../model/shared/quantities.ts"
import type * as MigrationError from "../../MigrationError.ts"
import { quoted } from "../connection.ts"
import * as ListenerSession from "../listenerSession.ts"
import { problemOf, unlessLost } from "../probes/probe.ts"
import type { Examined } from "./examined.ts"
import { advice, ok, problem } from "./finding.ts"
import type { Answer } from "./finding.ts"

/** One session listens as processes do, another notifies it as processes do. */
export const notifications = Effect.fnUntraced(function*({ direct, used }: Examined) {
  const name = "notifications"
  const without = "Without it processes poll: they notice work later, and send statements while idle"
  const { pooled } = direct.one
  if (pooled) {
    return advice(
      name,
      "the URL leads to a pooler, on which nothing can listen",
      `Set DIRECT_URL to the address of the server. ${without}`
    )
  }
  const channel = `dx_doctor_${randomUUID()}`
  const arrived = Deferred.makeUnsafe<void>()
  const refused = (what: string, more = "") => (reason: MigrationError.Reason) =>
    advice(name, `${what} is refused: ${problemOf(reason)}`, without + more)
  const listen = ListenerSession.open({
    login: direct.one,
    wanted: () => ({ applicationName: "duroxide-prisma doctor", channels: [channel], locks: [], shows: [] }),
    changed: Latch.makeUnsafe(),
    accepted: () => {},
    onNotification: (notification) => {
      if (notification.channel === channel) Deferred.doneUnsafe(arrived, Effect.void)
    }
  })
  const answer = Effect.raceFirst(
    Effect.as(Deferred.await(arrived), ok(name, "a notification of one session arrives at another")),
    Effect.as(
      ListenerSession.patience(patienceMs),
      advice(
        name,
        "LISTEN is accepted, but a notification did not arrive within 5 seconds",
        "Set DIRECT_URL to the address of the server, with the same database"
      )
    )
  )
  const notify = used.one.run("SELECT pg_notify($1, 'x')::text", [channel])
  return yield* Effect.scoped(unlessLost(
    Effect.andThen(listen, unlessLost(Effect.andThen(notify, answer), refused("NOTIFY", ownTransactions))),
    refused("LISTEN")
  ))
})

/** The queue of the server for notifications that a session has not read yet. */
export const queue = Effect.fnUntraced(function*({ used: { one } }: Examined) {
  const name = "notification queue"
  const [row] = yield* one.run(
    `SELECT pg_notification_queue_usage()::float8 AS usage, current_setting('duroxide.notify', true) = 'off' AS "isOff"`
  )
  const usage = Number(row!["usage"])
  const found = `${count(Math.round(usage * 1000) / 10)} % full`
  const todo = "End the session that listens and has a transaction open: pg_stat_activity has its query, LISTEN …"
  return row!["isOff"] === true
    ? advice(name, "duroxide.notify is off for this login", "RESET duroxide.notify, unless processes are to poll")
    : usage > 0.5
    ? problem(name, `${found}: nothing is notified any longer`, todo)
    : usage > 0.1
    ? advice(name, found, todo)
    : ok(name, found)
})

/** Who runs work, and how it is woken. */
export const processes = Effect.fnUntraced(function*({ direct: { one }, schema }: Examined): Effect.fn.Return<
  Answer,
  Effect.Error<ReturnType<typeof one.run>>
> {
  const name = "processes"
  const [row] = yield* one.run(
    `SELECT count(*) FILTER (WHERE out_listens)::integer AS listening,
       count(*) FILTER (WHERE NOT out_listens)::integer AS polling
     FROM ${quoted(schema)}.dx_read_processes() WHERE out_is_alive`
  )
  const listening = Number(row!["listening"])
  const polling = Number(row!["polling"])
  return polling > 0
    ? advice(
      name,
      `${counted(listening, "process listens", "processes listen")}, ${counted(polling, "polls", "poll")}`,
      "Look for Listener: in the logs of those that poll; longPolling off, and a pooler without directUrl, poll"
    )
    : ok(name, listening === 0 ? "none runs work" : counted(listening, "process listens", "processes listen"))
})

// internal

const ownTransactions =
  "; transactions of your own need ALTER DATABASE … SET duroxide.notify = off (docs/postgresql.md)"

/** Processes wait as long for their echo. */
const patienceMs = 5000
