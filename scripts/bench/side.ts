/** One side of a comparison: its processes, its database, and its windows. */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Scope from "effect/Scope"
import { fork } from "node:child_process"
import type { ChildProcess } from "node:child_process"
import { fileURLToPath } from "node:url"
import { proxyFor } from "../../test/programs/latencyProxy.ts"
import type { Sample } from "./contender.ts"
import type { Answer, Order } from "./contenderProcess.ts"
import type { Variant } from "./scenarios.ts"
import type { Counters, Reading, Server, Waits } from "./server.ts"
import { sum } from "./statistics.ts"

/** Where a contender is, and whether it needs a database. */
export interface Module {
  readonly name: string
  readonly path: string
  readonly usesPostgres: boolean
  /** Whether it can run what only this package has: an earlier version of it. */
  readonly isOurs?: boolean
  /** Scenarios it cannot run, and why. */
  readonly cannot?: Readonly<Record<string, string>>
}

/** One window of all processes of a side. */
export interface Measured {
  readonly samples: ReadonlyArray<Sample>
  readonly seconds: number
  /** What the server counted meanwhile; null for a side that does not use it. */
  readonly server: Counters | null
  /** Null unless they were asked for, and for a side that does not use the server. */
  readonly waits: Waits | null
  /** At the beginning and after each minute, of windows that are asked for it. */
  readonly readings: ReadonlyArray<Reading & { readonly transactionOpen: boolean }>
}

export interface Conditions {
  readonly seconds: number
  readonly warmUpSeconds: number
  readonly url: string
  /** Whether this is the first window of the database. */
  readonly first: boolean
  /** Whether the server is read every minute. */
  readonly byMinute: boolean
  /** Whether the sessions of the server are looked at. */
  readonly waits: boolean
  /** A transaction is open for so many seconds in the middle of the window; 0 for none. */
  readonly openTransactionSeconds: number
  /** File for the CPU profile of the first process. */
  readonly profile: string | undefined
}

const program = fileURLToPath(new URL("contenderProcess.js", import.meta.url))
let names = 0

/** Starts the processes, measures one window and ends them, so that the other side has the machine to itself. */
export const measure = async (
  server: Server,
  module: Module,
  { begins, cold, idle, load, once, pauseMs, preload, processes, roundTripMs }: Variant,
  { byMinute, first, openTransactionSeconds, profile, seconds, url, waits, warmUpSeconds }: Conditions
): Promise<Measured> => {
  const children: Array<Child> = []
  const scope = Scope.makeUnsafe()
  try {
    const proxy = roundTripMs > 0 ? await Effect.runPromise(Scope.provide(proxyFor(url), scope)) : undefined
    // One after the other: only the first may have to create tables.
    for (let i = 0; i < processes; i++) {
      const processName = `p${++names}`
      const child = start(module)
      children.push(child)
      await child.ask({ _tag: "Open", options: { url: proxy?.through(url) ?? url, load, processName } }, "Opened")
    }
    if (first) await server.fill(url, preload)
    if (proxy !== undefined) proxy.state.oneWayMs = roundTripMs / 2
    const database = new URL(url).pathname.slice(1)
    const counters = () => module.usesPostgres ? server.counters(database) : null
    const window = {
      warmUpMs: warmUpSeconds * 1000,
      windowMs: seconds * 1000,
      pauseMs,
      idle,
      cold,
      once,
      startsOne: begins === "one start"
    }
    const ended = children.map((child) => child.next("Ended"))
    const [began] = children.map((child, i) =>
      child.ask({
        _tag: "Drive",
        window: { ...window, name: `${module.name}-${names - i}` },
        profile: i === 0 ? profile : undefined
      }, "Began")
    )
    await began
    const before = await counters()
    const watched = waits && module.usesPostgres ? server.watch(database) : undefined
    if (begins === "lost listener") await server.endListeners(database)
    const firstEnded = Promise.race(ended.map((one) => one.then((answer) => [answer.sample] as const)))
    const [readings, [sample]] = await Promise.all([
      byMinute ? readEveryMinute(server, url, seconds, openTransactionSeconds) : [],
      firstEnded
    ])
    const after = await counters()
    const seen = await watched?.() ?? null
    const samples = (await Promise.all(ended)).map((answer) => answer.sample)
    return {
      samples,
      seconds: sample.seconds,
      server: before && after && difference(before, after),
      waits: seen,
      readings
    }
  } finally {
    await Promise.all(children.map((child) => child.close()))
    await Effect.runPromise(Scope.close(scope, Exit.void))
  }
}

/** Windows of one side as one. */
export const join = (windows: ReadonlyArray<Measured>): Measured => ({
  samples: windows.flatMap(({ samples }) => samples),
  seconds: sum(windows.map(({ seconds }) => seconds)),
  readings: [],
  waits: windows.map(({ waits }) => waits).reduce((all, one) =>
    all && one && { looks: all.looks + one.looks, seen: added(all.seen, one.seen) }
  ),
  server: windows.map(({ server }) => server).reduce((all, one) =>
    all && one && {
      statements: all.statements === null || one.statements === null ? null : all.statements + one.statements,
      transactions: all.transactions + one.transactions,
      walBytes: all.walBytes + one.walBytes,
      cpuMs: all.cpuMs === null || one.cpuMs === null ? null : all.cpuMs + one.cpuMs
    }
  )
})

// internal

const readEveryMinute = async (server: Server, url: string, seconds: number, openSeconds: number) => {
  const begin = performance.now()
  const until = (second: number) =>
    new Promise<void>((resolve) => setTimeout(resolve, begin + second * 1000 - performance.now()))
  const [from, to] = [(seconds - openSeconds) / 2, (seconds + openSeconds) / 2]
  const disturb = async () => {
    if (openSeconds <= 0) return
    await until(from)
    const end = await server.hold(url)
    await until(to)
    await end()
  }
  const read = async () => {
    const readings = []
    for (let minute = 0; minute * 60 <= seconds; minute++) {
      await until(minute * 60)
      // Whether it was open in the minute that has passed.
      const transactionOpen = openSeconds > 0 && from < minute * 60 && to > (minute - 1) * 60
      readings.push({ ...await server.read(url), transactionOpen })
    }
    return readings
  }
  const [readings] = await Promise.all([read(), disturb()])
  return readings
}

const added = (one: Waits["seen"], other: Waits["seen"]): Waits["seen"] =>
  Object.fromEntries(
    [...Object.keys(one), ...Object.keys(other)].map((wait) => [wait, (one[wait] ?? 0) + (other[wait] ?? 0)])
  )

const difference = (before: Counters, after: Counters): Counters => ({
  statements: before.statements === null || after.statements === null ? null : after.statements - before.statements,
  transactions: after.transactions - before.transactions,
  walBytes: after.walBytes - before.walBytes,
  cpuMs: before.cpuMs === null || after.cpuMs === null ? null : after.cpuMs - before.cpuMs
})

type Child = ReturnType<typeof start>

const start = (module: Module) => {
  // Its output is for people; the last line on stdout is the bench's own.
  const child = fork(program, [module.path], { stdio: ["ignore", 2, 2, "ipc"] })
  const next = <Tag extends Answer["_tag"]>(tag: Tag) => answerOf(module, child, tag)
  return {
    next,
    ask: <Tag extends Answer["_tag"]>(order: Order, tag: Tag) => {
      const answer = next(tag)
      child.send(order)
      return answer
    },
    close: () =>
      new Promise<void>((resolve) => {
        if (child.exitCode !== null || child.signalCode !== null) return resolve()
        const late = setTimeout(() => child.kill("SIGKILL"), 20_000)
        child.once("exit", () => {
          clearTimeout(late)
          resolve()
        })
        child.send({ _tag: "Close" } satisfies Order)
      })
  }
}

const answerOf = <Tag extends Answer["_tag"]>(module: Module, child: ChildProcess, tag: Tag) => {
  const answer = new Promise<Extract<Answer, { _tag: Tag }>>((resolve, reject) => {
    const settle = () => child.off("message", read).off("exit", ended)
    const read = (answer: Answer) => {
      if (answer._tag === "Failed") {
        settle()
        reject(new Error(`${module.name}: ${answer.problem}`))
      } else if (answer._tag === tag) {
        settle()
        resolve(answer as Extract<Answer, { _tag: Tag }>)
      }
    }
    const ended = (code: number | null, signal: string | null) => {
      settle()
      reject(new Error(`${module.name} has ended (${signal ?? code}) before its answer ${tag}`))
    }
    child.on("message", read).on("exit", ended)
  })
  answer.catch(() => {}) // one that is awaited later, or no longer
  return answer
}
