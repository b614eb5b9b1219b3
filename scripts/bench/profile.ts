/** Where the CPU time of a process went, by whose code it ran. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import * as inspector from "node:inspector"
import { dirname } from "node:path"
import { sum } from "./statistics.ts"

/** Begins to record this process; returns what ends it and writes the file, which browsers and editors open. */
export const recordProfile = (file: string): () => void => {
  const session = new inspector.Session()
  session.connect()
  session.post("Profiler.enable")
  session.post("Profiler.start")
  return () =>
    session.post("Profiler.stop", (error, { profile }) => {
      session.disconnect()
      if (error !== null) throw error
      mkdirSync(dirname(file), { recursive: true })
      writeFileSync(file, JSON.stringify(profile))
    })
}

export interface ProfileSummary {
  /** Shares of the time the main thread was busy, by owner, largest first; they add up to 1. */
  readonly fractions: Readonly<Record<string, number>>
  /** Functions that took most themselves. */
  readonly functions: ReadonlyArray<{ readonly name: string; readonly fraction: number }>
  /** The busy time, of the whole window. */
  readonly busy: number
}

/** A function of V8 without a file, such as `JSON.parse`, counts for its caller. */
export const summarize = (file: string): ProfileSummary => {
  const profile = JSON.parse(readFileSync(file, "utf8")) as inspector.Profiler.Profile
  const own = new Map<number, number>()
  profile.samples!.forEach((id, i) => own.set(id, (own.get(id) ?? 0) + profile.timeDeltas![i]!))
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]))
  const parents = new Map(profile.nodes.flatMap(({ children = [], id }) => children.map((child) => [child, id])))
  const ownerOf = (id: number): string => {
    const { functionName, url } = nodes.get(id)!.callFrame
    if (functionName === "(garbage collector)") return "garbage collection"
    const owner = owners.find(([pattern]) => pattern.test(url))?.[1]
    const parent = parents.get(id)
    return owner ?? (url !== "" ? "other packages" : parent === undefined ? "node and sockets" : ownerOf(parent))
  }
  const byOwner = new Map<string, number>()
  const byFunction = new Map<string, number>()
  let busy = 0
  const add = (to: Map<string, number>, key: string, time: number) => to.set(key, (to.get(key) ?? 0) + time)
  for (const [id, time] of own) {
    const { functionName, lineNumber, url } = nodes.get(id)!.callFrame
    if (functionName === "(idle)") continue
    busy += time
    add(byOwner, ownerOf(id), time)
    const place = url === "" ? "" : ` ${url.split("/").slice(-2).join("/")}:${lineNumber + 1}`
    add(byFunction, `${functionName === "" ? "(anonymous)" : functionName}${place}`, time)
  }
  const sorted = (times: Map<string, number>) =>
    [...times].sort(([, a], [, b]) => b - a).map(([name, time]) => ({ name, fraction: share(time, busy) }))
  return {
    fractions: Object.fromEntries(sorted(byOwner).map(({ fraction, name }) => [name, fraction])),
    functions: sorted(byFunction).slice(0, 15),
    busy: share(busy, sum(profile.timeDeltas!))
  }
}

// internal

const share = (part: number, whole: number) => Number((part / whole).toFixed(3))

/** By the file a function is in; the first that matches. */
const owners: ReadonlyArray<readonly [RegExp, string]> = [
  [/^node:/, "node and sockets"],
  [/\/node_modules\/(effect|@effect)\//, "Effect"],
  [/\/node_modules\/(@prisma|prisma)\//, "Prisma"],
  [/\/node_modules\/(pg|pg-[a-z-]+|pgpass|postgres-[a-z]+)\//, "pg"],
  [/\/build\/scripts\/bench\//, "the bench"],
  [/^(?!.*\/node_modules\/).*\/dist\//, "ours"]
]
