/**
 * The generated Prisma client, from its parts.
 *
 * Prisma's own entry file, `generated/client.ts`, sets a global `__dirname` in the application from `import.meta.url`,
 * which a bundle in CommonJS does not have. Nothing here needs a folder.
 */
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import { getPrismaClientClass, type PrismaClient as Client } from "../generated/internal/class.js"

export * as Prisma from "../generated/internal/prismaNamespace.js"

export const PrismaClient = getPrismaClientClass()
export type PrismaClient = Client

/**
 * Keeps clients of one database that send raw statements from loading Prisma's query compiler, which only queries of
 * models need: WebAssembly of megabytes, compiled when a client connects, on the thread of the application. The first
 * client sends a statement: a version of Prisma that compiles these, too, gets its compiler back.
 */
export const withoutCompiler = Effect.fnUntraced(function*(...clients: readonly [Raw, ...ReadonlyArray<Raw>]) {
  let isAsked = false
  const restored = clients.flatMap((client) => {
    // Private, so out of sight of the compiler.
    const engine: unknown = Reflect.get(client, "_engine")
    if (!Predicate.hasProperty(engine, "config") || !Predicate.hasProperty(engine.config, "compilerWasm")) return []
    const { config } = engine
    // Without a provider: Prisma keeps the compiler of a provider for all clients of the process, and those of the
    // application need the real one.
    const changed = { ...engine.config, activeProvider: undefined, compilerWasm: noCompiler(() => (isAsked = true)) }
    Reflect.set(engine, "config", changed)
    return () => Reflect.set(engine, "config", config)
  })
  const [first] = clients
  // What fails for another reason fails again with the next statement.
  yield* Effect.ignore(Effect.tryPromise(() => first.$queryRaw`SELECT 1`))
  if (!isAsked) return
  for (const restore of restored) restore()
  yield* Effect.ignore(Effect.tryPromise(() => first.$disconnect()))
})

// internal

type Raw = Pick<PrismaClient, "$disconnect" | "$queryRaw">

/** Not among the types of Node. */
declare const WebAssembly: { readonly compile: (bytes: Uint8Array) => Promise<unknown> }

/** What the engine loads in place of the compiler. */
const noCompiler = (asked: () => void) => {
  const refuse = () => {
    asked()
    throw new Error("This client sends raw statements only.")
  }
  return {
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
