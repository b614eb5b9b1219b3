/**
 * Notifiers under test: what each hears and logs, with effects that wait for it.
 */
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as References from "effect/References"
import * as Database from "../../src/prisma/Database.ts"
import * as PgNotifier from "../../src/prisma/PgNotifier.ts"
import type { Hint, Listener, Queue, Received } from "../../src/waking/Notifier.ts"
import type * as PgServer from "./PgServer.ts"

export interface Heard {
  readonly listener: Listener
  readonly received: Array<Received>
  /** `connected`, or the problem, in their order. */
  readonly changes: Array<string>
  /** Waits until it holds; looked at after every call of the listener. */
  readonly until: (holds: () => boolean) => Effect.Effect<void>
  /** Waits until this many hints have arrived; returns them, and forgets all. */
  readonly next: (count: number) => Effect.Effect<ReadonlyArray<Received>>
  readonly connections: () => number
}

export const hearing = (): Heard => {
  const received: Array<Received> = []
  const changes: Array<string> = []
  const looks = new Set<() => void>()
  const changed = () => {
    for (const look of looks) look()
  }
  const until = (holds: () => boolean) =>
    Effect.callback<void>((resume) => {
      const look = () => {
        if (!holds()) return
        looks.delete(look)
        resume(Effect.void)
      }
      looks.add(look)
      look()
      return Effect.sync(() => looks.delete(look))
    })
  return {
    listener: {
      connected: () => {
        changes.push("connected")
        changed()
      },
      disconnected: (problem) => {
        changes.push(problem)
        changed()
      },
      receive: (hint) => {
        received.push(hint)
        changed()
      }
    },
    received,
    changes,
    until,
    next: (count) => Effect.map(until(() => received.length >= count), () => received.splice(0)),
    connections: () => changes.filter((change) => change === "connected").length
  }
}

export interface Line {
  readonly level: string
  readonly text: string
  readonly annotations: Readonly<Record<string, unknown>>
}

/** All lines, from Debug. */
export const logging = () => {
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
  const into = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    effect.pipe(Effect.provide(logger), Effect.provideService(References.MinimumLogLevel, "Debug"))
  /** Lines of the listener with this level. */
  const of = (level: string) =>
    lines.filter((line) => line.level === level && line.text.startsWith("Listener: ")).map(({ text }) => text)
  return { lines, into, of }
}

export interface Open extends Heard {
  readonly announce: (...hints: ReadonlyArray<Hint>) => Effect.Effect<void>
  readonly processes: Effect.Effect<Readonly<Record<Queue, number>>>
  readonly database: Database.Database["Service"]
}

/** A process that listens, with a pool of its own; returns at once. */
export const open = Effect.fnUntraced(
  function*(test: Pick<PgServer.TestDatabase, "url" | "schema">, options: Partial<PgNotifier.Options> = {}) {
    const database = yield* Database.make({ url: test.url, schema: test.schema, maxConnections: 2 })
    const notifier = yield* PgNotifier.make({ url: test.url, ...options }).pipe(
      Effect.provideService(Database.Database, database)
    )
    const heard = hearing()
    yield* notifier.listen(heard.listener)
    const opened: Open = {
      ...heard,
      announce: (...hints) => Effect.orDie(notifier.announce(hints)),
      processes: Effect.orDie(notifier.processes!),
      database
    }
    return opened
  }
)

/** Opens and waits until it is connected. */
export const connected = (...args: Parameters<typeof open>) =>
  Effect.tap(open(...args), ({ connections, until }) => until(() => connections() > 0))

export interface Backend {
  readonly pid: number
  /** The last one. */
  readonly query: string
}

/** The backends of all listeners of the database. */
export const backends = ({ sql }: Pick<PgServer.TestDatabase, "sql">) =>
  sql<Backend>(
    `SELECT pid, query FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'duroxide-prisma listener%' ORDER BY pid`
  )

/** Terminates all listeners' backends; returns their number. */
export const terminate = ({ sql }: Pick<PgServer.TestDatabase, "sql">) =>
  Effect.map(
    sql(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND application_name LIKE 'duroxide-prisma listener%'`
    ),
    (rows) => rows.length
  )
