/**
 * Whether a server can carry a store at all: tries each thing that is needed, or used if it is there.
 */
import * as Effect from "effect/Effect"
import { randomUUID } from "node:crypto"
import type * as ProviderError from "../../../provider/ProviderError.ts"
import * as Session from "../../shared/directSession.ts"
import { quoted } from "../connection.ts"
import { needed } from "../probes/needed.ts"
import { optional } from "../probes/optional.ts"
import { tryOut } from "../probes/probe.ts"
import type { Pair, Probe, Tried } from "../probes/probe.ts"
import { advice, ok, problem, unknown } from "./finding.ts"
import type { Answer } from "./finding.ts"

/** What to do about a server that lacks a needed feature. */
export const unfit = "This server cannot carry a store as it is: see docs/postgresql.md, or use PostgreSQL 14 or newer"

export const examine = Effect.fnUntraced(function*(sessions: Pair) {
  const place = yield* findPlace(sessions)
  if (place._tag === "ReadOnly") {
    const untried = ({ name }: Probe) => unknown(name, "not tried: this session may not write")
    return { needed: needed.map(untried), optional: optional.map(untried) }
  }
  const tryAll = (probes: ReadonlyArray<Probe>) =>
    Effect.forEach(probes, (probe) => Effect.map(tryAt(place, probe, sessions), (tried) => answerOf(probe, tried)))
  const answers = yield* tryAll(needed)
  const others = yield* tryAll(optional)
  return { needed: [...answers, yield* rolledBack(sessions, place)], optional: others }
})

// internal

/** Where objects are created: in schemas of their own, in that of the store, in temporary ones, or not at all. */
type Place =
  | { readonly _tag: "New"; readonly prefix: string }
  | { readonly _tag: "Existing" | "Temporary"; readonly schema: string }
  | { readonly _tag: "Nowhere" | "ReadOnly" }

const findPlace = Effect.fnUntraced(function*({ one }: Pair): Effect.fn.Return<Place, ProviderError.Reason> {
  const [row] = yield* one.run(
    `SELECT has_database_privilege(current_database(), 'CREATE') AS "mayCreate",
       has_schema_privilege((SELECT oid FROM pg_namespace WHERE nspname = $1), 'CREATE') AS "mayUse",
       has_database_privilege(current_database(), 'TEMP') AS temporary,
       current_setting('transaction_read_only') = 'on' AS "isReadOnly"`,
    [one.schema]
  )
  if (row?.["isReadOnly"] === true) return { _tag: "ReadOnly" }
  if (row?.["mayCreate"] === true) return { _tag: "New", prefix: `dx_doctor_${randomUUID().slice(0, 8)}_` }
  if (row?.["mayUse"] === true) return { _tag: "Existing", schema: quoted(one.schema) }
  return row?.["temporary"] === true ? { _tag: "Temporary", schema: "pg_temp" } : { _tag: "Nowhere" }
})

const tryAt = (
  place: Place,
  probe: Probe,
  sessions: Pair
): Effect.Effect<Tried | undefined, ProviderError.Reason> => {
  if (!probe.creates) return tryOut(probe, sessions, "")
  switch (place._tag) {
    case "New": {
      // That of the try before may still be there.
      const schema = place.prefix + probe.name.replaceAll(/\W/g, "_").toLowerCase()
      return tryOut(probe, sessions, schema, `CREATE SCHEMA ${schema}`)
    }
    case "Existing":
    case "Temporary":
      return tryOut(probe, sessions, place.schema)
    default:
      return Effect.succeed(undefined)
  }
}

const answerOf = (
  { isIndirect = false, missing = "the server answers otherwise than PostgreSQL", name, use, without }: Probe,
  tried: Tried | undefined
): Answer => {
  if (tried === "works") return ok(name, use)
  if (tried === undefined) {
    return unknown(name, "not tried: this login may create neither a schema nor temporary tables")
  }
  const found = tried === "differs" ? missing : `refused: ${tried.refused}`
  if (tried !== "differs" && isIndirect) return unknown(name, `the try is refused: ${tried.refused}`)
  return without === undefined ? problem(name, found, unfit) : advice(name, found, `Without it ${without}`)
}

/** Whether the tries have left nothing; what they have left is removed. */
const rolledBack = Effect.fnUntraced(function*({ one }: Pair, place: Place) {
  const name = "creation in transactions"
  const works = ok(name, "a migration that fails leaves nothing")
  const fails = problem(name, "tables outlive the rollback of the transaction that has created them", unfit)
  if (place._tag === "Existing") return (yield* Session.hasTable(one, "dx_probe")) ? fails : works
  if (place._tag !== "New") return unknown(name, "not tried: this login may not create a table that lasts")
  const kept = yield* one.run("SELECT nspname::text AS name FROM pg_namespace WHERE starts_with(nspname, $1)", [
    place.prefix
  ])
  yield* Effect.forEach(kept, ({ name }) => one.run(`DROP SCHEMA ${String(name)} CASCADE`))
  return kept.length === 0 ? works : fails
})
