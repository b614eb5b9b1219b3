/**
 * The orchestrations and activities that a process serves, by name and version.
 */
import * as Result from "effect/Result"
import * as SemVer from "effect/SemVer"
import * as changeMarker from "../model/shared/changeMarker.ts"
import type { ServedOrchestration } from "../provider/ProviderDriver.ts"
import type { Code } from "../replay/interpreter.ts"

/** One version of an orchestration. */
export interface Registration {
  readonly name: string
  readonly version: string
  readonly code: Code
}

/** Exactly this version; or, for null, the newest version; or the newest version if it is not older than `atLeast`. */
export type Wanted = string | null | { readonly atLeast: string }

export interface Registry {
  readonly resolve: (name: string, version: Wanted) => Registration | undefined
  /** `name@version` of each registered orchestration, for logs. */
  readonly names: ReadonlyArray<string>
  /** For claims: the orchestrations that `resolve` finds. */
  readonly serves: ReadonlyArray<ServedOrchestration>
}

/** Texts with which other clients ask for any version. */
export const anyVersion: ReadonlyArray<string> = ["unknown", "0.0.0"]

/** Throws on two registrations with the same name and version: a defect of the application. */
export const makeUnsafe = (registrations: ReadonlyArray<Registration>): Registry => {
  const versions = new Map<string, Map<string, Registration>>()
  const newest = new Map<string, Registration>()
  for (const registration of registrations) {
    const { name, version } = registration
    const ofName = versions.get(name) ?? new Map<string, Registration>()
    if (ofName.has(version)) throw new Error(`orchestration "${name}" ${version} is registered twice`)
    versions.set(name, ofName.set(version, registration))
    const best = newest.get(name)
    if (best === undefined || isNewer(version, best.version)) newest.set(name, registration)
  }
  return {
    resolve: (name, wanted) => {
      if (typeof wanted === "string") return versions.get(name)?.get(wanted)
      const best = newest.get(name)
      return best !== undefined && wanted !== null && isNewer(wanted.atLeast, best.version) ? undefined : best
    },
    names: registrations.map(({ name, version }) => `${name}@${version}`),
    serves: [...versions].map(([name, ofName]) => ({ name, versions: [...ofName.keys(), ...anyVersion] }))
  }
}

/** Activities by name. Throws when two have the same name, and on a name that Duroxide or this package reserves. */
export const handlersUnsafe = <A>(activities: ReadonlyArray<readonly [name: string, handler: A]>): Map<string, A> => {
  const handlers = new Map<string, A>()
  for (const [name, handler] of activities) {
    if (handlers.has(name)) throw new Error(`activity "${name}" is registered twice`)
    if (name.startsWith(builtIn)) throw new Error(`activity "${name}" has a name of Duroxide's own: ${builtIn}…`)
    if (name === changeMarker.activity) throw new Error(`activity "${name}" has a name that histories use for changes`)
    handlers.set(name, handler)
  }
  return handlers
}

// internal

/** Prefix of the activities that are built into each Rust runtime, which would answer calls of these names. */
const builtIn = "__duroxide_syscall:"

/** Other processes may use any text as a version; a text that is not a semantic version is older than all versions. */
const isNewer = (version: string, than: string): boolean => {
  const [one, other] = [SemVer.parse(version), SemVer.parse(than)]
  return Result.isSuccess(one) && (Result.isFailure(other) || SemVer.isGreaterThan(one.success, other.success))
}
