/**
 * The processes of a run: workers in slots, each replaced by deploys and restarted when it dies, a stranger that serves
 * none of the work of the others, and clients.
 */
import type { Chance } from "../../test/programs/chaos/random.ts"
import * as logs from "./logs.ts"
import * as processes from "./processes.ts"
import type { Store } from "./store.ts"

export const everyVersion = ["1.0.0", "2.0.0"] as const

const workers = 4
const clients = 2

/** Shorter than what `Block` takes. */
const shortLockMs = 3_000

/** How long a process may take to answer once all faults are over. */
const pingTimeoutMs = 30_000

export interface Slot {
  process: processes.Process
  versions: ReadonlyArray<string>
}

/** What clients that were killed left open. */
export interface Unfinished {
  /** Boxes that may still be read. */
  readonly boxes: ReadonlyArray<string>
  /** Boxes that got letters but were never started. */
  readonly starts: ReadonlyArray<{ readonly id: string; readonly program: "Flow" | "Box" }>
}

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
  readonly swallowPill: (program: "Pill" | "TurnPill") => void
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
  const senders: Array<{ name: string; process: processes.Process }> = []
  const effects = logs.effectsFile(directory)
  let flows: ReadonlyArray<string> = []
  let over = false
  let names = 0

  const startProcess = (
    program: "worker" | "client",
    name: string,
    settings: object,
    clockSeed?: number
  ): processes.Process => {
    const url = store.urls[chance.is(0.5) ? "patient" : "impatient"]
    const process = processes.start({ program, name, directory, options: { url, ...settings }, clockSeed })
    everything.push(process)
    return process
  }

  const startWorker = (versions: ReadonlyArray<string>, clockSeed?: number) => {
    const lockMs = short || chance.is(0.5) ? shortLockMs : undefined
    const optimisticTurns = chance.is(0.5)
    const settings = { versions, effects, lockMs, optimisticTurns }
    const process = startProcess("worker", `worker-${++names}`, settings, clockSeed)
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

  const addSlot = (to: Array<Slot>, versions: ReadonlyArray<string>) => {
    const slot = { process: startWorker(versions), versions }
    supervise(slot)
    to.push(slot)
  }

  const startClient = (sender: string, openBoxes: ReadonlyArray<string>) =>
    startProcess("client", `${sender}.${++names}`, {
      log: logs.clientFile(directory, `${sender}.${names}`),
      task: { task: "work", seed: chance.between(0, 2 ** 31), flows, versions: everyVersion, openBoxes }
    })

  /** Runs a client until it exits. */
  const runClient = async (name: string, task: object) => {
    const process = startProcess("client", name, { log: logs.clientFile(directory, name), task })
    process.endingAt = processes.now()
    await process.ended
    if (process.code !== 0) console.log(`client ${name} failed:\n${process.output()}`)
  }

  const linesOf = (sender: string) =>
    everything.filter(({ name }) => name.startsWith(`${sender}.`)).flatMap(({ name }) =>
      logs.readClient(directory, name)
    )

  const fleet: Fleet = {
    slots,
    processes: all,
    start: async (kinds) => {
      flows = kinds
      for (let i = 0; i < workers; i++) addSlot(slots, options.versions)
      addSlot(strangers, [])
      await Promise.all([...slots, ...strangers].map(({ process }) => process.ready))
      for (let i = 0; i < clients; i++) {
        const name = `client${i}`
        senders.push({ name, process: startClient(name, []) })
      }
      await Promise.all(senders.map(({ process }) => process.ready))
    },
    replace: async (slot, { clockSeed, order = "stopFirst", versions = slot.versions }) => {
      const old = slot.process
      const next = () => {
        slot.process = startWorker(versions, clockSeed)
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
      slot.process = startWorker(slot.versions)
      supervise(slot)
      await slot.process.ready.catch(() => {})
    },
    killClient: async () => {
      const sender = chance.one(senders)
      await sender.process.kill()
      await processes.sleep(chance.between(0, 2_000))
      sender.process = startClient(sender.name, logs.openBoxes(linesOf(sender.name)))
    },
    swallowPill: (program) => void poisoners.push(runClient(`poisoner.${++names}`, { task: "poison", program })),
    endClients: async () => {
      await Promise.all([...poisoners, ...senders.map(({ process }) => process.kill())])
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
        processes: [...slots, ...strangers].map(({ process }) => process.name),
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
