/**
 * The programs of one process, by name and version.
 */
import * as Result from "effect/Result"
import * as SemVer from "effect/SemVer"
import type { Code } from "../replay/replay.ts"

export interface Program {
  readonly name: string
  readonly version: string
  readonly code: Code
}

export interface Registry {
  /** The exact version asked for, or the newest one for null. */
  readonly resolve: (name: string, version: string | null) => Program | undefined
  /** `name@version` of everything registered, for messages. */
  readonly known: ReadonlyArray<string>
}

/** Throws on a version that is no semver, and on two programs of one name and version: defects of the application. */
export const makeUnsafe = (programs: ReadonlyArray<Program>): Registry => {
  const versions = new Map<string, Map<string, Program>>()
  const newest = new Map<string, Program>()
  for (const program of programs) {
    const { name, version } = program
    if (Result.isFailure(SemVer.parse(version))) {
      throw new Error(`orchestration "${name}" has version "${version}", which is no semantic version like 1.0.0`)
    }
    const ofName = versions.get(name) ?? new Map<string, Program>()
    if (ofName.has(version)) throw new Error(`orchestration "${name}" ${version} is registered twice`)
    versions.set(name, ofName.set(version, program))
    const best = newest.get(name)
    if (best === undefined || SemVer.isGreaterThan(SemVer.parseUnsafe(version), SemVer.parseUnsafe(best.version))) {
      newest.set(name, program)
    }
  }
  return {
    resolve: (name, version) => version === null ? newest.get(name) : versions.get(name)?.get(version),
    known: programs.map(({ name, version }) => `${name}@${version}`)
  }
}
