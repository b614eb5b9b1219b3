/**
 * Messages that arrive while an instance begins to wait for them: several processes send them, another one serves the
 * instances, and nothing but the wake-ups makes it look. A message that no wake-up leads to stays where it is, which
 * ends the run with a violation.
 *
 * In each round an instance takes two letters and a signal, which three processes send at random moments within ±20
 * milliseconds: while the turn of another one begins, runs, or is stored. The next round begins when a sender has been
 * woken by the new status. Every instance has a database of its own, so that no wake-up for one makes up for that of
 * another.
 */
import { fork } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import * as pg from "pg"
import { now, sleep } from "./orders.ts"
import type { Answer, Order, Settings } from "./orders.ts"

export interface Options {
  /** Migrated databases, one for each instance. */
  readonly urls: ReadonlyArray<string>
  /** The compiled `process.ts`. */
  readonly program: URL
  /** There are rounds until so many were sent, or the time is over. */
  readonly messages: number
  readonly seconds?: number
  /**
   * `kills`: the sessions of all listeners are terminated every 200 milliseconds. `drops`: no hint reaches the server,
   * and the fallback look comes every two seconds; else it never comes.
   */
  readonly faults?: "kills" | "drops"
}

export interface Outcome {
  readonly messages: number
  readonly seconds: number
  readonly messagesPerSecond: number
  /** Turns, each of which ended with the instance waiting. */
  readonly waits: number
  /** From the answer to a round's last message until the sender knows of the round's end. */
  readonly p50Ms: number
  readonly p99Ms: number
  readonly slowestMs: number
  /** Sessions of listeners that were terminated. */
  readonly kills: number
  /** Why the server looked for messages. */
  readonly looks: Readonly<Record<string, number>>
  readonly violations: ReadonlyArray<string>
}

export const fallbackPollMs = 2_000

const spreadMs = 20

const betweenKillsMs = 200

/** Longer than any wait may take, and than the looks of a waiter whose hint was lost. */
const patienceMs = 15_000

/** A round that takes longer has missed a wake-up. A waiter that is not woken looks after five seconds. */
const lateMs = { none: 4_000, kills: patienceMs, drops: 3 * fallbackPollMs }

export const run = async ({ faults, messages, program, seconds = Infinity, urls }: Options): Promise<Outcome> => {
  const settings = {
    urls,
    dropsHints: false,
    listens: true,
    fallbackPollMs: faults === "drops" ? fallbackPollMs : 36_000_000
  }
  const processes = await Promise.all([
    start(program, { ...settings, role: "server", dropsHints: faults === "drops" }),
    // A server that receives no hints does not learn of those that wait.
    start(program, { ...settings, role: "sender", listens: faults !== "drops" }),
    start(program, { ...settings, role: "sender", listens: false }),
    start(program, { ...settings, role: "sender", listens: false })
  ])
  const [server, first, second, third] = processes
  const violations: Array<string> = []
  let sent = 0
  const took: Array<number> = []

  const wait = (lane: number, version: number) => first.ask({ lane, task: "await", version, timeoutMs: patienceMs })
  const versions = await Promise.all(urls.map(async (_, lane) => {
    await first.ask({ lane, task: "start" })
    return (await wait(lane, 0)).version!
  }))
  const before = await untilQuiet(server.looks)
  const beganMs = now()

  const lane = async (url: string, index: number) => {
    const order = { lane: index }
    let version = versions[index]!
    while (sent < messages && now() - beganMs < seconds * 1_000 && violations.length === 0) {
      sent += 3
      const offsets = [0, 0, 0].map(() => spreadMs * (2 * Math.random() - 1))
      // The orders have to arrive before the first of them.
      const earliestMs = now() + 3 - Math.min(...offsets)
      const at = offsets.map((offset) => earliestMs + offset) as [number, number, number]
      const waiting = wait(index, version)
      const stored = await Promise.all([
        first.ask({ ...order, task: "letter", atMs: at[0] }),
        second.ask({ ...order, task: "letter", atMs: at[1] }),
        third.ask({ ...order, task: "signal", atMs: at[2] })
      ])
      const storedMs = now()
      const answers = [await waiting, ...stored] as const
      const tookMs = now() - storedMs
      took.push(tookMs)
      const problem = answers.find((answer) => answer.problem !== undefined)?.problem
      if (problem !== undefined) violations.push(`round ${version} of lane ${index}: ${problem}; ${await stateOf(url)}`)
      else if (tookMs > lateMs[faults ?? "none"]) {
        violations.push(`round ${version} of lane ${index} took ${Math.round(tookMs)} ms: a wake-up was lost`)
      }
      version = answers[0].version ?? version
    }
  }

  const killing = faults === "kills" ? killListeners(urls) : undefined
  await Promise.all(urls.map(lane))
  const elapsedSeconds = (now() - beganMs) / 1_000
  const kills = await killing?.stop() ?? 0
  const after = await server.looks()
  const looks = Object.fromEntries(
    Object.entries(after.reasons).map(([reason, count]) => [reason, count - (before.reasons[reason] ?? 0)])
  )
  await Promise.all(processes.map((process) => process.close()))
  const polls = pollsOf(looks)
  if (faults === undefined && polls > 0) {
    violations.push(`${polls} looks came without a wake-up, and may hide lost ones`)
  }
  took.sort((one, other) => one - other)
  const at = (part: number) => Math.round(took[Math.ceil(part * took.length) - 1] ?? 0)
  return {
    messages: sent,
    seconds: Math.round(elapsedSeconds * 10) / 10,
    messagesPerSecond: Math.round(sent / elapsedSeconds),
    waits: after.turns - before.turns,
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    slowestMs: at(1),
    kills,
    looks,
    violations
  }
}

// internal

const pollsOf = (looks: Readonly<Record<string, number>>) => (looks["Poll"] ?? 0) + (looks["FallbackTimeout"] ?? 0)

/** A process polls until its listener is connected. */
const untilQuiet = async (looks: () => Promise<Extract<Answer, { _tag: "Looks" }>>) => {
  while (true) {
    const before = await looks()
    await sleep(1_000)
    const after = await looks()
    if (pollsOf(before.reasons) === pollsOf(after.reasons)) return after
  }
}

const start = async (program: URL, settings: Settings) => {
  const child = fork(fileURLToPath(program), [JSON.stringify(settings)], { stdio: ["ignore", 2, 2, "ipc"] })
  const asked = new Map<number, (answer: Extract<Answer, { _tag: "Done" }>) => void>()
  let number = 0
  const next = <Tag extends Answer["_tag"]>(tag: Tag) =>
    new Promise<Extract<Answer, { _tag: Tag }>>((resolve, reject) => {
      const ended = () => reject(new Error(`a ${settings.role} has ended`))
      const read = (answer: Answer) => {
        if (answer._tag !== tag) return
        child.off("message", read).off("exit", ended)
        resolve(answer as Extract<Answer, { _tag: Tag }>)
      }
      child.on("message", read).on("exit", ended)
    })
  child.on("message", (answer: Answer) => {
    if (answer._tag !== "Done") return
    asked.get(answer.number)!(answer)
    asked.delete(answer.number)
  })
  child.on("exit", (code) => {
    for (const [number, done] of asked) done({ _tag: "Done", number, problem: `a ${settings.role} has ended: ${code}` })
  })
  await next("Ready")
  return {
    ask: (order: Unnumbered) =>
      new Promise<Extract<Answer, { _tag: "Done" }>>((resolve) => {
        asked.set(++number, resolve)
        child.send({ ...order, number } satisfies Order)
      }),
    looks: () => {
      const answer = next("Looks")
      child.send("looks")
      return answer
    },
    close: async () => {
      const exited = once(child, "exit")
      child.disconnect()
      await exited
    }
  }
}

type Unnumbered = Order extends infer One ? One extends Order ? Omit<One, "number"> : never : never

const killListeners = (urls: ReadonlyArray<string>) => {
  let kills = 0
  const state = { isOver: false }
  const kill = async () => {
    const clients = await Promise.all(urls.map(connect))
    while (!state.isOver) {
      await sleep(betweenKillsMs)
      for (const client of clients) {
        const { rowCount } = await client.query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND application_name LIKE 'duroxide-prisma listener%'`
        )
        kills += rowCount ?? 0
      }
    }
    await Promise.all(clients.map((client) => client.end()))
    return kills
  }
  const killed = kill()
  return {
    stop: () => {
      state.isOver = true
      return killed
    }
  }
}

const connect = async (url: string) => {
  const plain = new URL(url)
  const schema = plain.searchParams.get("schema") ?? "public"
  plain.searchParams.delete("schema")
  const client = new pg.Client(plain.toString())
  await client.connect()
  await client.query(`SET search_path = ${pg.escapeIdentifier(schema)}`)
  return client
}

/** What the store holds of a round that does not end. */
const stateOf = async (url: string) => {
  const client = await connect(url)
  const { rows: [row] } = await client.query(
    `SELECT (SELECT count(*) FROM orchestrator_queue WHERE visible_at <= now())::integer AS messages,
            (SELECT count(*) FROM instance_locks)::integer AS locks`
  )
  await client.end()
  return `${row.messages} messages stored, ${row.locks} locks`
}
