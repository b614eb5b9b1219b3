/**
 * The generated Prisma client, from its parts.
 *
 * Prisma's own entry file, `generated/client.ts`, sets a global `__dirname` in the application from `import.meta.url`,
 * which a bundle in CommonJS does not have. Nothing here needs a folder.
 */
import * as Predicate from "effect/Predicate"
import { getPrismaClientClass, type PrismaClient as Client } from "../generated/internal/class.js"

export * as Prisma from "../generated/internal/prismaNamespace.js"

export const PrismaClient = getPrismaClientClass()
export type PrismaClient = Client

/**
 * Keeps a client of raw statements from loading Prisma's query compiler, which queries of models need: WebAssembly of
 * megabytes, compiled when the client connects. Its engine gets settings without a provider, because Prisma keeps the
 * compiler of a provider for all clients of the process, and those of the application need the real one. The client of
 * a version of Prisma without these settings loads the compiler.
 */
export const withoutCompiler = (client: PrismaClient): PrismaClient => {
  // Private, so out of sight of the compiler.
  const engine: unknown = Reflect.get(client, "_engine")
  if (!Predicate.hasProperty(engine, "config") || !Predicate.hasProperty(engine.config, "compilerWasm")) return client
  Reflect.set(engine, "config", { ...engine.config, activeProvider: undefined, compilerWasm: noCompiler })
  return client
}

// internal

/** Not among the types of Node. */
declare const WebAssembly: { readonly compile: (bytes: Uint8Array) => Promise<unknown> }

const refuse = () => {
  throw new Error("This client sends raw statements only.")
}

/** What the engine loads in place of the compiler. */
const noCompiler = {
  importName: "./no_compiler.js",
  getRuntime: () =>
    Promise.resolve({
      __wbg_set_wasm: () => {},
      QueryCompiler: class {
        compile = refuse
        compileBatch = refuse
        free() {}
      }
    }),
  /** A module that exports one function, which does nothing. */
  getQueryCompilerWasmModule: () => WebAssembly.compile(emptyModule)
}

const bytes = (...sections: ReadonlyArray<ReadonlyArray<number>>) => Uint8Array.from(sections.flat())

/** Magic number and version; then sections of types, functions, exports and code, each with its number and length. */
const emptyModule = bytes(
  [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
  [1, 4, 1, 0x60, 0, 0],
  [3, 2, 1, 0],
  [7, 20, 1, 16, ...new TextEncoder().encode("__wbindgen_start"), 0, 0],
  [10, 4, 1, 2, 0, 0x0b]
)
