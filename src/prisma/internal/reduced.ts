/**
 * Migrations for servers that lack something that can be left out: each such part is tried before the first migration
 * that has it.
 */
import * as Effect from "effect/Effect"
import { ours } from "../../model/shared/logging.ts"
import type * as ProviderError from "../../provider/ProviderError.ts"
import type { Session } from "../shared/directSession.ts"
import { quoted } from "./connection.ts"
import type { Manifest, Migration } from "./migration.ts"
import { statementTriggers, storageParameters, tableLocks } from "./probes/optional.ts"
import { tryOut } from "./probes/probe.ts"
import type { Probe } from "./probes/probe.ts"

/**
 * The text of a migration as this server takes it, with a warning for each part that is left out. Locks of tables are
 * needed where processes may be at work: they are left out only of a schema that is new.
 */
export const make = Effect.fnUntraced(function*(
  session: Session,
  migrations: ReadonlyArray<Migration>,
  isNew: boolean
): Effect.fn.Return<(migration: Migration) => string, ProviderError.Reason> {
  const lacking: Array<Part> = []
  for (const [part, probe] of Object.entries(probes) as ReadonlyArray<readonly [Part, Probe]>) {
    if (part === "tableLocks" && !isNew) continue
    if (migrations.every(({ manifest }) => manifest.optional[part].length === 0)) continue
    const tried = yield* tryOut(probe, { one: session, other: session }, quoted(session.schema))
    // The migration itself says what the role lacks.
    if (tried === "works" || (tried !== "differs" && tried.isDenied)) continue
    lacking.push(part)
    yield* Effect.logWarning(
      `Migrator: the server lacks ${probe.name}, which are left out; without them ${probe.without}`
    )
      .pipe(ours({ module: "Migrator", schema: session.schema, ...(tried !== "differs" && { error: tried.refused }) }))
  }
  return ({ manifest, sql }) =>
    lacking.flatMap((part) => manifest.optional[part]).reduce((text, part) => text.replaceAll(part, ""), sql)
})

// internal

type Part = keyof Manifest["optional"]

const probes: Readonly<Record<Part, Probe>> = { storageParameters, statementTriggers, tableLocks }
