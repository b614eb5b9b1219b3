import type { CoreVersion, VersionRange } from "../Instance.ts"

/**
 * The version space of executions started by this package: `1000.x.y`, where x.y counts our replay rules.
 *
 * Rust runtimes claim executions up to their own version (0.x), never ours; we claim only ours. A change of the replay
 * rules increments x and keeps the older rules for executions pinned to a lower version.
 */
export const current: CoreVersion = { major: 1000, minor: 1, patch: 0 }

/** The versions our dispatchers claim. */
export const supported: VersionRange = { min: { major: 1000, minor: 0, patch: 0 }, max: current }

export const isWithin = (version: CoreVersion, { max, min }: VersionRange): boolean =>
  order(min, version) <= 0 && order(version, max) <= 0

/**
 * Whether events with this version belong to an execution of this package. Only those follow its stricter rules, and no
 * Rust runtime claims them.
 */
export const isOwn = (duroxideVersion: string): boolean => Number.parseInt(duroxideVersion, 10) >= 1000

/** The version that the first event of a history names. */
export const parse = (duroxideVersion: string): CoreVersion => {
  const [major = 0, minor = 0, patch = 0] = duroxideVersion.split(".").map(Number)
  return { major, minor, patch }
}

/** A version that every Rust runtime claims and no TypeScript runtime does; the first turn pins the actual version. */
export const anyRust: CoreVersion = { major: 0, minor: 0, patch: 0 }

// internal

const order = (a: CoreVersion, b: CoreVersion) => a.major - b.major || a.minor - b.minor || a.patch - b.patch
