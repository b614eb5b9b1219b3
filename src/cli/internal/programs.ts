/**
 * The programs of a module of the application: what its exports hold, without building any layer.
 */
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import type * as Schema from "effect/Schema"
import { existsSync } from "node:fs"
import { resolve } from "node:path"
import { pathToFileURL } from "node:url"
import { counted } from "../../model/shared/quantities.ts"
import { anyVersion, isOlder } from "../../model/shared/versions.ts"
import { programOf } from "../../replay/programs.ts"
import type { Program } from "../../replay/programs.ts"
import { CommandError } from "./failure.ts"

export interface Programs {
  /** `name version` of each, in the order of the exports. */
  readonly names: ReadonlyArray<string>
  /** The program that runs this version; undefined if the module has none. */
  readonly find: (name: string, version: string) => Program | undefined
  /** Whether the module has any version of the orchestration. */
  readonly hasName: (name: string) => boolean
  /** Whether it exports the definition of this version. */
  readonly defines: (name: string, version: string) => boolean
}

/** What a module exports that forms are made from. */
export interface Definitions {
  readonly orchestrations: ReadonlyArray<Definition>
  readonly signals: ReadonlyArray<Pick<Definition, "name" | "payload">>
}

/** Imports the module, and collects the orchestrations and signals that it exports: alone, in arrays or in objects. */
export const loadDefinitions = (path: string): Effect.Effect<Definitions, CommandError> =>
  Effect.flatMap(importModule(path), (exports) => {
    const found = emptyFound()
    collect(exports, found, 0)
    return found.definitions.size + found.signals.size > 0
      ? Effect.succeed({ orchestrations: [...found.definitions.values()], signals: [...found.signals.values()] })
      : refuse(
        "NoDefinitions",
        `${path} exports no orchestration and no signal: export what Orchestration.make returns`
      )
  })

/** Imports the module, and collects the layers of `toLayer` that it exports: alone, in arrays or in objects. */
export const load = (path: string): Effect.Effect<Programs, CommandError> =>
  Effect.flatMap(importModule(path), (exports) => {
    const found = emptyFound()
    const conflict = collect(exports, found, 0)
    if (conflict !== undefined) {
      return refuse("ProgramsConflict", `${path} exports two programs of ${conflict}: export one of them`)
    }
    return found.programs.size > 0
      ? Effect.succeed(programsOf([...found.programs.values()], new Set(found.definitions.keys())))
      : refuse("NoPrograms", withoutPrograms(path, [...found.definitions.keys()]))
  })

// internal

interface Definition {
  readonly name: string
  readonly version: string
  readonly payload: Schema.Codec<any, any>
}

interface Found {
  readonly programs: Map<string, Program>
  readonly definitions: Map<string, Definition>
  readonly signals: Map<string, Pick<Definition, "name" | "payload">>
  readonly seen: Set<unknown>
}

const emptyFound = (): Found => ({ programs: new Map(), definitions: new Map(), signals: new Map(), seen: new Set() })

/** How deep exports may be nested in arrays and objects. */
const mostLevels = 4

const keyOf = ({ name, version }: { readonly name: string; readonly version: string }) => `${name} ${version}`

/** Returns the key of two different programs, if there are such. */
const collect = (value: unknown, found: Found, level: number): string | undefined => {
  if (typeof value !== "object" || value === null || found.seen.has(value)) return undefined
  found.seen.add(value)
  const program = programOf(value)
  if (program !== undefined) {
    const key = keyOf(program)
    if (found.programs.has(key)) return key
    found.programs.set(key, program)
    return undefined
  }
  if (isDefinition(value)) {
    found.definitions.set(keyOf(value), value)
    return undefined
  }
  if (isSignal(value)) {
    found.signals.set(value.name, value)
    return undefined
  }
  if (level === mostLevels || !isContainer(value)) return undefined
  for (const part of Object.values(value)) {
    const conflict = collect(part, found, level + 1)
    if (conflict !== undefined) return conflict
  }
  return undefined
}

const isSignal = (value: object): value is Pick<Definition, "name" | "payload"> =>
  Predicate.hasProperty(value, "unawaited") && Predicate.hasProperty(value, "wait") &&
  Predicate.hasProperty(value, "name") && typeof value.name === "string"

const isDefinition = (value: object): value is Definition =>
  Predicate.hasProperty(value, "toLayer") && Predicate.hasProperty(value, "name") && typeof value.name === "string" &&
  Predicate.hasProperty(value, "version") && typeof value.version === "string"

/** An array, a plain object, or the exports of a module. */
const isContainer = (value: object): boolean => {
  const prototype: unknown = Object.getPrototypeOf(value)
  return Array.isArray(value) || prototype === Object.prototype || prototype === null
}

const programsOf = (programs: ReadonlyArray<Program>, definitions: ReadonlySet<string>): Programs => ({
  names: programs.map(keyOf),
  find: (name, version) => {
    const versions = programs.filter((program) => program.name === name)
    return anyVersion.includes(version)
      ? versions.reduce<Program | undefined>(
        (best, one) => best === undefined || isOlder(best.version, one.version) ? one : best,
        undefined
      )
      : versions.find((program) => program.version === version)
  },
  hasName: (name) => programs.some((program) => program.name === name),
  defines: (name, version) => definitions.has(keyOf({ name, version }))
})

const refusal = (code: string, message: string) => new CommandError({ code, message, exit: "usage" })

const refuse = (code: string, message: string) => Effect.fail(refusal(code, message))

const withoutPrograms = (path: string, definitions: ReadonlyArray<string>): string => {
  const [first] = definitions
  return first === undefined
    ? `${path} exports no program of an orchestration. Export the layers that toLayer returns, each by itself`
    : `${path} exports ${counted(definitions.length, "orchestration")} (${first}${
      definitions.length > 1 ? ", …" : ""
    }) without a program. ` +
      "Export the layers that toLayer returns as well, each by itself"
}

const importModule = (path: string): Effect.Effect<unknown, CommandError> => {
  const file = resolve(path)
  if (!existsSync(file)) {
    return refuse("ModuleMissing", `there is no file ${path}. Paths are relative to the current folder`)
  }
  return Effect.tryPromise({
    try: () => import(/* @vite-ignore */ pathToFileURL(file).href) as Promise<unknown>,
    catch: (thrown) => refusal("ModuleNotLoaded", `${path} cannot be loaded: ${todoOf(path, problemOf(thrown))}`)
  })
}

const todoOf = (path: string, { code, message }: Problem): string => {
  if (!/\.[cm]?tsx?$/.test(path)) return message
  return code === "ERR_UNKNOWN_FILE_EXTENSION"
    ? `Node ${process.versions.node} loads no TypeScript by itself: use Node 22.18 or newer, ${loader}, or name the ` +
      "compiled JavaScript"
    : needsLoader.has(code)
    ? `${message}. Node loads TypeScript that imports by full file names and has no enums or namespaces; for other ` +
      `TypeScript use ${loader}, or name the compiled JavaScript`
    : message
}

const loader = `a loader such as tsx (NODE_OPTIONS="--import tsx")`

/** Errors of TypeScript that a loader takes. */
const needsLoader: ReadonlySet<string> = new Set([
  "ERR_MODULE_NOT_FOUND",
  "ERR_UNSUPPORTED_DIR_IMPORT",
  "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX",
  "ERR_INVALID_TYPESCRIPT_SYNTAX"
])

/** Longest message of an error of the module that is shown. */
const longestMessage = 300

interface Problem {
  readonly code: string
  readonly message: string
}

const problemOf = (thrown: unknown): Problem => ({
  code: Predicate.hasProperty(thrown, "code") ? String(thrown.code) : "",
  message: (thrown instanceof Error ? thrown.message : String(thrown)).split("\n")[0]!.slice(0, longestMessage)
})
