/**
 * The processes of a run: workers in slots, each replaced by deploys and restarted when it dies, a stranger that serves
 * none of the work of the others, and clients.
 */
import type { Chance } from "../../test/programs/chaos/random.ts"
import type { Part } from "../../test/programs/chaos/worker.ts"
import * as logs from "./logs.ts"
import * as processes from "./processes.ts"
import type { Store } from "./store.ts"

export const everyVersion = ["1.0.0", "2.0.0"] as const

/** What the workers do: all of it over one pool, or parts in processes of their own. */
const workers: ReadonlyArray<ReadonlyArray<Part>> = [
  ["runtime", "tasks", "publisher", "consumer"],
  ["runtime", "tasks", "publisher", "consumer"],
  ["runtime"],
  ["tasks"],
  ["publisher", "consumer"]
]
const clients = 2

/** Shorter than what `Block` takes. */
const shortLockMs = 3_000
const defaultLockMs = 30_000

/** How long a process may take to answer once all faults are over. */
const pingTimeoutMs = 30_000

export interface Slot {
  process: processes.Process
  versions: ReadonlyArray<string>
  readonly parts: ReadonlyArray<Part>
}

/** Clients of one name, one after the other. */
interface Sender {
  readonly name: string
  process: processes.Process | undefined
}

/** What clients that were killed left open. */
export interface Unfinished {
  /** Boxes that may still be read. */
  readonly boxes: ReadonlyArray<string>
  /** Boxes that got letters but were never started. */
  readonly starts: ReadonlyArray<{ readonly id: string; readonly program: "Flow" | "Box" }>
}

/** What kills every process that runs it: an activity, a turn, a task. */
export type Pill = "Pill" | "TurnPill" | "TaskPill"

export interface Fleet {
  readonly slots: ReadonlyArray<Slot>
  /** Workers ever started. */
  readonly processes: ReadonlyArray<processes.Process>
  /** Returns when all processes are ready. `flows` are the kinds that clients start. */
  readonly start: (flows: ReadonlyArray<string>) => Promise<void>
  /** Replaces the process of a slot; the old one is asked to end before or after the new one is ready. */
  readonly replace: (
    slot: Slot,
    changes: {
      readonly versions?: ReadonlyArray<string>
      readonly clockSeed?: number
      readonly order?: "stopFirst" | "startFirst"
    }
  ) => Promise<void>
  /** Starts a process in place of one that has ended. */
  readonly restart: (slot: Slot) => Promise<void>
  /** Kills one of the clients; another takes over its boxes. */
  readonly killClient: () => Promise<void>
  /** Returns before the pill is started, which takes as long as the store has other faults. */
  readonly swallowPill: (program: Pill) => void
  readonly endClients: () => Promise<void>
  /** Makes every slot serve all versions. Processes that already do are kept, with their clocks. */
  readonly serveEverything: () => Promise<void>
  /** Lets a client close what others left open. */
  readonly finish: (unfinished: Unfinished) => Promise<void>
  /** Asks every process whether it is alive. */
  readonly ping: () => Promise<void>
  /** Asks all to end; returns those that did not. */
  readonly stop: () => Promise<ReadonlyArray<string>>
  readonly killAll: () => void
}

export const make = (options: {
  readonly directory: string
  readonly store: Store
  readonly chance: Chance
  /** Locks of all processes are short, so that a short run sees them expire. */
  readonly short: boolean
  readonly versions: ReadonlyArray<string>
}): Fleet => {
  const { chance, directory, short, store } = options
  const all: Array<processes.Process> = []
  const everything: Array<processes.Process> = []
  const slots: Array<Slot> = []
  const strangers: Array<Slot> = []
  const poisoners: Array<Promise<void>> = []
  const senders: Array<Sender> = []
  const effects = logs.effectsFile(directory)
  let flows: ReadonlyArray<string> = []
  let over = false
  let sendsNoMore = false
  let names = 0

  const startProcess = (
    program: "worker" | "client",
    name: string,
    settings: object,
    clockSeed?: number
  ): processes.Process => {
    const kind = chance.is(0.5) ? "patient" : "impatient"
    const url = store.urls[kind]
    const process = processes.start({ program, name, directory, options: { url, ...settings }, clockSeed })
    process.role = store.roles[kind]
    everything.push(process)
    return process
  }

  const startWorker = (
    { parts, versions }: { readonly parts: ReadonlyArray<Part>; readonly versions: ReadonlyArray<string> },
    clockSeed?: number
  ) => {
    const lockMs = short || chance.is(0.5) ? shortLockMs : undefined
    const optimisticTurns = chance.is(0.5)
    const settings = { parts, versions, effects, lockMs, optimisticTurns }
    const process = startProcess("worker", `worker-${++names}`, settings, clockSeed)
    process.lockMs = lockMs ?? defaultLockMs
    all.push(process)
    return process
  }

  /** Restarts the process of the slot whenever it ends without a request. */
  const supervise = (slot: Slot) => {
    const { process } = slot
    void process.ended.then(async () => {
      if (over || slot.process !== process || process.endingAt !== undefined) return
      await processes.sleep(300)
      if (!over && slot.process === process) await fleet.restart(slot)
    })
  }

  const addSlot = (to: Array<Slot>, parts: ReadonlyArray<Part>, versions: ReadonlyArray<string>) => {
    const slot = { process: startWorker({ parts, versions }), parts, versions }
    supervise(slot)
    to.push(slot)
  }

  /** Takes over the boxes of an earlier process of the sender. */
  const startClient = (sender: Sender) => {
    const name = `${sender.name}.${++names}`
    const openBoxes = logs.openBoxes(linesOf(sender.name))
    const process = startProcess("client", name, {
      log: logs.clientFile(directory, name),
      task: { task: "work", seed: chance.between(0, 2 ** 31), flows, versions: everyVersion, openBoxes }
    })
    sender.process = process
    // One that cannot connect ends.
    void process.ended.then(async () => {
      await processes.sleep(300)
      if (!sendsNoMore && sender.process === process && process.endingAt === undefined) startClient(sender)
    })
    return process
  }

  /** Runs a client until it exits; again, if it could not connect. */
  const runClient = async (name: string, task: object): Promise<void> => {
    const process = startProcess("client", name, { log: logs.clientFile(directory, name), task })
    process.endingAt = processes.now()
    await process.ended
    if (over || process.code === 0) return
    const why = process.output()
    if (!/Error: verify: /.test(why)) return console.log(`client ${name} failed:\n${why}`)
    await processes.sleep(300)
    return runClient(name, task)
  }

  /** Names of the living processes that have a part. */
  const namesOf = (part: Part) =>
    [...slots, ...strangers].filter(({ parts }) => parts.includes(part)).map(({ process }) => process.name)

  const linesOf = (sender: string) =>
    everything.filter(({ name }) => name.startsWith(`${sender}.`)).flatMap(({ name }) =>
      logs.readClient(directory, name)
    )

  const fleet: Fleet = {
    slots,
    processes: all,
    start: async (kinds) => {
      flows = kinds
      for (const parts of workers) addSlot(slots, parts, options.versions)
      addSlot(strangers, ["runtime"], [])
      await Promise.all([...slots, ...strangers].map(({ process }) => process.ready))
      for (let i = 0; i < clients; i++) {
        const sender: Sender = { name: `client${i}`, process: undefined }
        startClient(sender)
        senders.push(sender)
      }
      await Promise.all(senders.map(async ({ process }) => process?.ready))
    },
    replace: async (slot, { clockSeed, order = "stopFirst", versions = slot.versions }) => {
      const old = slot.process
      const next = () => {
        slot.process = startWorker({ parts: slot.parts, versions }, clockSeed)
        slot.versions = versions
        supervise(slot)
        return slot.process.ready.catch(() => {}) // then it is restarted
      }
      if (order === "startFirst") await next()
      await old.terminate()
      if (order === "stopFirst") await next()
    },
    restart: async (slot) => {
      await slot.process.ended
      slot.process = startWorker(slot)
      supervise(slot)
      await slot.process.ready.catch(() => {})
    },
    killClient: async () => {
      const sender = chance.one(senders)
      await sender.process?.kill()
      await processes.sleep(chance.between(0, 2_000))
      startClient(sender)
    },
    swallowPill: (program) => void poisoners.push(runClient(`poisoner.${++names}`, { task: "poison", program })),
    endClients: async () => {
      sendsNoMore = true
      await Promise.all([...poisoners, ...senders.map(({ process }) => process?.kill())])
    },
    serveEverything: async () => {
      const complete = ({ process, versions }: Slot) =>
        process.endedAt === undefined && versions.length === everyVersion.length
      await Promise.all(
        slots.filter((slot) => !complete(slot)).map((slot) => fleet.replace(slot, { versions: everyVersion }))
      )
    },
    finish: (unfinished) => runClient("finisher", { task: "finish", ...unfinished }),
    ping: () =>
      runClient("pinger", {
        task: "ping",
        runtimes: namesOf("runtime"),
        taskWorkers: namesOf("tasks"),
        timeoutMs: pingTimeoutMs
      }),
    stop: async () => {
      over = true
      const alive = [...slots, ...strangers].map(({ process }) => process).filter((process) =>
        process.endedAt === undefined
      )
      const outcomes = await Promise.all(alive.map(async (process) =>
        !(await process.terminate())
          ? `${process.name} did not end within 30 s of SIGTERM`
          : process.code === 0
          ? undefined
          : `${process.name} ended with code ${process.code} after SIGTERM`
      ))
      return outcomes.filter((outcome) => outcome !== undefined)
    },
    killAll: () => {
      over = true
      for (const process of everything) if (process.endedAt === undefined) void process.kill()
    }
  }
  return fleet
}
