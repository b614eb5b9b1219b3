/**
 * The faults of a run. Two lanes run in parallel, one for processes and one for the store; each takes one fault after
 * the other, first every one that was asked for, then any of them.
 */
import { random } from "../../test/programs/chaos/random.ts"
import type { Chance } from "../../test/programs/chaos/random.ts"
import { everyVersion } from "./fleet.ts"
import type { Fleet } from "./fleet.ts"
import { now } from "./processes.ts"
import { type Store, tables } from "./store.ts"

/** A fault that was injected. */
export interface Injected {
  readonly name: string
  readonly from: number
  readonly to: number
  /** What it kept from being renewed. */
  readonly stops: ReadonlyArray<Kept>
  /** Whose; null: of all roles. */
  readonly roles: ReadonlyArray<string> | null
  /** How far the clock of the server was ahead meanwhile, milliseconds. */
  readonly aheadMs: number
}

/** What processes keep by renewing it: the locks of activities, and the leases of tasks. */
export type Kept = "activities" | "tasks"

interface Context {
  readonly store: Store
  readonly fleet: Fleet
  readonly chance: Chance
  /** Length of a fault of the store, milliseconds. */
  readonly span: () => number
  /** The longest step of the server's clock, milliseconds. */
  readonly longestStepMs: number
  /** Returns early when the run ends. */
  readonly pause: (ms: number) => Promise<void>
  /** Between 0 and 1. */
  readonly progress: () => number
}

interface Fault {
  readonly lane: "processes" | "store"
  /** Returns what it hit, if that matters. */
  readonly inject: (context: Context) => Promise<Hit | void>
}

interface Hit {
  readonly what: string
  readonly stops?: ReadonlyArray<Kept>
  readonly roles?: ReadonlyArray<string>
  readonly aheadMs?: number
}

/** Functions that the fleet calls. */
const called = new RegExp(
  "^dx_((fetch|ack|advance|start|store|renew|abandon|enqueue|claim|complete|fail|take|receive|defer|cancel|await|sweep)_|" +
    "publish_messages|add_to_outbox|mark_sent|create_tasks|lock_attempt|read_(locks|next_due|ends|history))"
)

const everything: ReadonlyArray<Kept> = ["activities", "tasks"]

/** What cannot be renewed without a table. */
const keptIn = (table: string): ReadonlyArray<Kept> =>
  table === "worker_queue" ? ["activities"] : table === "queue_tasks" ? ["tasks"] : []

/** What cannot be renewed without a function. */
const renewedBy = (name: string): ReadonlyArray<Kept> =>
  name.startsWith("dx_renew_work_item_locks") ? ["activities"] : name.startsWith("dx_renew_tasks") ? ["tasks"] : []

const faults: Record<string, Fault> = {
  /** One activity, turn or task that kills each process it runs in; a task has neighbours. */
  pills: {
    lane: "processes",
    inject: async ({ chance, fleet, progress, store }) => {
      const running = await store.sql(
        `SELECT FROM executions JOIN instances USING (instance_id)
         WHERE orchestration_name IN ('Pill', 'TurnPill') AND executions.status = 'Running'
         UNION ALL SELECT FROM queue_tasks WHERE name = 'TaskPill' AND status IN ('Pending', 'Running')`
      )
      // Its ten deliveries take a while, and two pills at once leave too few processes for other work.
      if (running.length === 0 && progress() < 0.7) {
        fleet.swallowPill(chance.one(["Pill", "TurnPill", "TaskPill"] as const))
      }
    }
  },

  /** A rolling deploy or rollback. At times no process serves some version. */
  deploys: {
    lane: "processes",
    inject: async ({ chance, fleet, pause, progress }) => {
      const versions = chance.one([["1.0.0"], ["2.0.0"], everyVersion])
      const order = chance.one(["stopFirst", "startFirst"] as const)
      const pauseMs = chance.between(0, 1_000)
      for (const slot of fleet.slots) {
        if (progress() >= 1) return // the others are replaced at the end of the run
        await fleet.replace(slot, { versions, order })
        await pause(pauseMs)
      }
    }
  },

  /** A worker is killed. */
  kills: {
    lane: "processes",
    inject: async ({ chance, fleet, pause }) => {
      const slot = chance.one(fleet.slots)
      await slot.process.kill()
      await pause(chance.between(0, 2_000))
      await fleet.restart(slot)
    }
  },

  /** A client is killed, perhaps between a call and its answer. */
  clients: { lane: "processes", inject: ({ fleet }) => fleet.killClient() },

  /** A worker is replaced by one whose clock is stepped from then on. */
  clocks: {
    lane: "processes",
    inject: ({ chance, fleet }) =>
      fleet.replace(chance.one(fleet.slots), { clockSeed: chance.between(0, 2 ** 31), order: "startFirst" })
  },

  /** A worker is suspended for longer than a lock lasts, then continues. */
  freezes: {
    lane: "processes",
    inject: ({ chance, fleet }) => chance.one(fleet.slots).process.freeze(chance.between(500, 6_000))
  },

  /** Inserts into some tables fail. */
  disk: {
    lane: "store",
    inject: async ({ chance, pause, span, store }) => {
      const some = tables.filter(() => chance.is(0.5))
      const full = some.length > 0 ? some : [tables[0]]
      await store.sql("INSERT INTO chaos.full SELECT unnest($1::text[])", [full])
      try {
        await pause(span())
      } finally {
        await store.sql("DELETE FROM chaos.full")
      }
      return { what: full.join(", ") } // renewals write no new rows
    }
  },

  /** A right on a table is missing, or that on a function. */
  rights: {
    lane: "store",
    inject: async ({ chance, pause, span, store }) => {
      const right = chance.one(["SELECT", "INSERT", "UPDATE", "DELETE", "EXECUTE"])
      const isOfFunction = right === "EXECUTE"
      const one = chance.one<string>(isOfFunction ? store.functions.filter((name) => called.test(name)) : tables)
      const what = `${right} ON ${isOfFunction ? `FUNCTION ${one}` : one}`
      await store.sql(`REVOKE ${what} FROM ${store.group}`)
      try {
        await pause(span())
      } finally {
        await store.sql(`GRANT ${what} TO ${store.group}`)
      }
      const stops = isOfFunction ? renewedBy(one) : right === "SELECT" || right === "UPDATE" ? keptIn(one) : []
      return { what: `${right} ON ${one.replace(/\(.*/, "()")}`, stops }
    }
  },

  /** One or both roles may not log in, and lose their sessions: a password has changed, `pg_hba.conf` is wrong. */
  logins: {
    lane: "store",
    inject: async ({ chance, pause, span, store: { roles, sql } }) => {
      const refused = chance.one([[roles.patient], [roles.impatient], [roles.patient, roles.impatient]])
      try {
        for (const role of refused) await sql(`ALTER ROLE ${role} NOLOGIN`)
        await sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ANY ($1)", [refused])
        await pause(span())
      } finally {
        for (const role of refused) await sql(`ALTER ROLE ${role} LOGIN`)
      }
      return { what: refused.length > 1 ? "both roles" : "one role", stops: everything, roles: refused }
    }
  },

  /** The clock of the server steps forth or back, and later back again. */
  "server-clock": {
    lane: "store",
    inject: async ({ chance, longestStepMs, pause, span, store }) => {
      const aheadMs = chance.one([1_000, 5_000, 20_000, 60_000].filter((ms) => ms <= longestStepMs)) *
        chance.one([1, -1])
      const step = (ms: number) => store.sql("UPDATE chaos.clock SET ahead = $1 * interval '1 millisecond'", [ms])
      await step(aheadMs)
      try {
        await pause(span())
      } finally {
        await step(0)
      }
      return { what: `${aheadMs} ms`, aheadMs }
    }
  },

  /** A table is locked, as by CREATE INDEX or ALTER TABLE. */
  locks: {
    lane: "store",
    inject: async ({ chance, pause, span, store }) => {
      const table = chance.one(tables)
      const what = `${table} IN ${chance.one(["SHARE", "ACCESS EXCLUSIVE"])} MODE`
      const session = await store.session()
      try {
        await session.query("BEGIN")
        await session.query(`LOCK TABLE ${what}`)
        await pause(span())
        await session.query("COMMIT")
      } finally {
        session.release()
      }
      return { what, stops: keptIn(table) }
    }
  },

  /** The server ends connections. */
  cuts: {
    lane: "store",
    inject: async ({ chance, pause, store }) => {
      for (let i = chance.between(1, 5); i > 0; i--) {
        await store.sql(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND usename IN ($1, $2) AND random() < 0.5`,
          [`${store.group}_patient`, `${store.group}_impatient`]
        )
        await pause(chance.between(50, 1_000))
      }
    }
  }
}

/** `blocks` is part of the work: activities that block the event loop for longer than a lock lasts. */
export const names: ReadonlyArray<string> = [...Object.keys(faults), "blocks"]

/** Kinds of flows that clients start. Blocks are rare, as each takes a whole process for seconds. */
export const flows = (wanted: ReadonlyArray<string>): ReadonlyArray<string> => {
  const harmless = Array.from({ length: 8 }, () => ["steps", "steps", "slow", "child", "timers"]).flat()
  return wanted.includes("blocks") ? [...harmless, "block"] : harmless
}

/** With deploys, a run begins before anything serves the newest version. */
export const firstVersions = (wanted: ReadonlyArray<string>): ReadonlyArray<string> =>
  wanted.includes("deploys") ? ["1.0.0"] : everyVersion

/** Longest step of the server's clock, milliseconds. What a step delays can be as late after the run. */
export const longestStep = (minutes: number): number => minutes < 1 ? 5_000 : minutes < 2 ? 20_000 : 60_000

export const inject = async (options: {
  readonly store: Store
  readonly fleet: Fleet
  readonly wanted: ReadonlyArray<string>
  readonly minutes: number
  readonly chance: Chance
}): Promise<ReadonlyArray<Injected>> => {
  const { fleet, minutes, store, wanted } = options
  const beganAt = now()
  const lengthMs = minutes * 60_000
  const progress = () => (now() - beganAt) / lengthMs
  const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, Math.min(ms, leftMs())))
  const leftMs = () => Math.max(0, lengthMs - (now() - beganAt))
  const longestMs = minutes < 3 ? 5_000 : 25_000
  const longestStepMs = longestStep(minutes)
  const injected: Array<Injected> = []

  const lane = async (which: Fault["lane"], seed: number) => {
    const chance = random(seed)
    const all = Object.keys(faults).filter((name) => wanted.includes(name) && faults[name]!.lane === which)
    if (all.length === 0) return pause(lengthMs)
    // A pill needs the most time, so it comes first.
    const first = all.map((name) => ({ name, at: name === "pills" ? -1 : chance.next() }))
      .sort((a, b) => a.at - b.at).map(({ name }) => name)
    const context = {
      store,
      fleet,
      chance,
      pause,
      progress,
      longestStepMs,
      span: () => chance.between(1_000, longestMs)
    }
    while (progress() < 1) {
      await pause(chance.between(300, 2_000))
      if (progress() >= 1) return
      const name = first.shift() ?? chance.one(all)
      const from = now()
      const hit = await faults[name]!.inject(context)
      const to = now()
      injected.push({ name, from, to, stops: hit?.stops ?? [], roles: hit?.roles ?? null, aheadMs: hit?.aheadMs ?? 0 })
      const at = ((from - beganAt) / 1000).toFixed(1).padStart(6)
      console.log(`${at} s  ${name}${hit === undefined ? "" : ` of ${hit.what}`}, ${Math.round(to - from)} ms`)
    }
  }

  const seeds = [options.chance.between(0, 2 ** 31), options.chance.between(0, 2 ** 31)] as const
  await Promise.all([lane("processes", seeds[0]), lane("store", seeds[1])])
  return injected
}
