import type { CoreVersion, VersionRange } from "../Instance.ts"

/**
 * The version space of executions started by this package: `1000.x.y`, where x.y counts our replay rules.
 *
 * Rust runtimes ask for executions up to their own version (0.x) and never see ours; we ask for ours and never see
 * theirs. A change of the replay rules counts x up and keeps the older rules for executions pinned below.
 */
export const current: CoreVersion = { major: 1000, minor: 1, patch: 0 }

/** What our dispatchers claim. */
export const supported: VersionRange = { min: { major: 1000, minor: 0, patch: 0 }, max: current }

/** What every Rust runtime claims and none of ours; its first turn pins the version that runs it. */
export const anyRust: CoreVersion = { major: 0, minor: 0, patch: 0 }
