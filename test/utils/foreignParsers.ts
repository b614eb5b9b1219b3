import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as pg from "pg"

const { builtins } = pg.types

/** Takes types without a name, too. */
const parsers = pg.types as unknown as {
  readonly getTypeParser: (type: number) => (text: string) => unknown
  readonly setTypeParser: (type: number, parse: (text: string) => unknown) => void
}

/** Types that statements of this package return. */
const types: ReadonlyArray<number> = [
  builtins.BOOL,
  builtins.INT2,
  builtins.INT4,
  builtins.INT8,
  builtins.OID,
  builtins.FLOAT4,
  builtins.FLOAT8,
  builtins.TEXT,
  builtins.VARCHAR,
  builtins.UUID,
  builtins.JSON,
  builtins.JSONB,
  // arrays of them
  1000,
  1005,
  1007,
  1009,
  1015,
  1016,
  1021,
  1022,
  2951
]

/** Until the scope is closed, the application has a parser for each type, whose results are of no use. */
export const set: Effect.Effect<void, never, Scope.Scope> = Effect.gen(function*() {
  for (const type of types) {
    const parser = parsers.getTypeParser(type)
    yield* Effect.addFinalizer(() => Effect.sync(() => parsers.setTypeParser(type, parser)))
    parsers.setTypeParser(type, (text) => Symbol.for(text))
  }
})
