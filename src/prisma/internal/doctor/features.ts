/**
 * Whether a server can carry a store at all: tries each thing that is needed, or used if it is there.
 */
import * as Effect from "effect/Effect"
import { randomUUID } from "node:crypto"
import type * as ProviderError from "../../../provider/ProviderError.ts"
import type { Pair } from "./examined.ts"
import { advice, ok, problem, problemOf, unknown, unlessLost } from "./finding.ts"
import type { Answer } from "./finding.ts"
import * as Probes from "./probes.ts"

/** What to do about a server that lacks a needed feature. */
export const unfit = "This server cannot carry a store: use PostgreSQL 14 or newer"

export const examine = Effect.fnUntraced(function*(sessions: Pair) {
  const place = yield* findPlace(sessions)
  if (place === "read-only") {
    const untried = ({ name }: Probes.Probe) => unknown(name, "not tried: this session may not write")
    return { needed: Probes.needed.map(untried), optional: Probes.optional.map(untried) }
  }
  const tryAll = (probes: ReadonlyArray<Probes.Probe>) =>
    Effect.forEach(probes, (probe) => Effect.map(tryOut(probe, sessions, place), (tried) => answerOf(probe, tried)))
  const needed = yield* tryAll(Probes.needed)
  const optional = yield* tryAll(Probes.optional)
  return { needed: [...needed, yield* rolledBack(sessions, place)], optional }
})

// internal

/** Where objects are created: in new schemas with this prefix, in temporary ones, or not at all. */
type Place = { readonly prefix: string } | "temporary" | "nowhere"

const findPlace = Effect.fnUntraced(function*({ one }: Pair) {
  const [row] = yield* one.run(
    `SELECT has_database_privilege(current_database(), 'CREATE') AS schema,
       has_database_privilege(current_database(), 'TEMP') AS temporary,
       current_setting('transaction_read_only') = 'on' AS "isReadOnly"`
  )
  if (row?.["isReadOnly"] === true) return "read-only"
  if (row?.["schema"] === true) return { prefix: `dx_doctor_${randomUUID().slice(0, 8)}_` }
  return row?.["temporary"] === true ? "temporary" : "nowhere"
})

type Tried = "works" | "differs" | "untried" | { readonly refused: string }

/** Each try has a schema of its own: that of the try before may still be there. */
const tryOut = (
  { creates, name, works }: Probes.Probe,
  sessions: Pair,
  place: Place
): Effect.Effect<Tried, ProviderError.Reason> => {
  if (creates && place === "nowhere") return Effect.succeed("untried")
  const { one: { run } } = sessions
  const schema = typeof place === "object" ? place.prefix + name.replaceAll(/\W/g, "_").toLowerCase() : "pg_temp"
  return unlessLost(
    Effect.gen(function*(): Effect.fn.Return<Tried, ProviderError.Reason> {
      yield* run(creates && typeof place === "object" ? `BEGIN; CREATE SCHEMA ${schema}` : "BEGIN")
      return (yield* works(sessions, schema)) ? "works" : "differs"
    }),
    (reason): Tried => ({ refused: problemOf(reason) })
  ).pipe(Effect.ensuring(Effect.ignore(run("ROLLBACK"))))
}

const answerOf = (
  { missing = "the server answers otherwise than PostgreSQL", name, use, without }: Probes.Probe,
  tried: Tried
): Answer => {
  if (tried === "works") return ok(name, use)
  if (tried === "untried") {
    return unknown(name, "not tried: this login may create neither a schema nor temporary tables")
  }
  const found = tried === "differs" ? missing : `refused: ${tried.refused}`
  return without === undefined ? problem(name, found, unfit) : advice(name, found, `Without it ${without}`)
}

/** Whether the tries have left nothing; what they have left is removed. */
const rolledBack = Effect.fnUntraced(function*({ one: { run } }: Pair, place: Place) {
  const name = "creation in transactions"
  if (typeof place === "string") return unknown(name, "not tried: this login may not create a schema")
  const kept = yield* run("SELECT nspname::text AS name FROM pg_namespace WHERE starts_with(nspname, $1)", [
    place.prefix
  ])
  yield* Effect.forEach(kept, ({ name }) => run(`DROP SCHEMA ${String(name)} CASCADE`))
  return kept.length === 0
    ? ok(name, "a migration that fails leaves nothing")
    : problem(name, "tables outlive the rollback of the transaction that has created them", unfit)
})
