/**
 * The orchestrations and activities that a process serves, by name and version.
 */
import * as markers from "../model/shared/markers.ts"
import { anyVersion, isOlder } from "../model/shared/versions.ts"
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
    if (best === undefined || isOlder(best.version, version)) newest.set(name, registration)
  }
  return {
    resolve: (name, wanted) => {
      if (typeof wanted === "string") return versions.get(name)?.get(wanted)
      const best = newest.get(name)
      return best !== undefined && wanted !== null && isOlder(best.version, wanted.atLeast) ? undefined : best
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
    if (markers.isName(name)) {
      throw new Error(`activity "${name}" has a reserved name: histories record decisions of programs under it`)
    }
    handlers.set(name, handler)
  }
  return handlers
}

// internal

/** Prefix of the activities that are built into each Rust runtime, which would answer calls of these names. */
const builtIn = "__duroxide_syscall:"
