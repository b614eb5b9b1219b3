/**
 * Orchestrations with their versions: who runs them, and how many instances they have.
 */
import * as Effect from "effect/Effect"
import { parseDefinition } from "../../operating/definitions.ts"
import type { Database } from "../../prisma/Database.ts"
import * as LiveReport from "../../prisma/shared/liveReport.ts"
import { Admin } from "../../provider/Admin.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type * as Api from "../Api.ts"
import * as Shapes from "./shapes.ts"

/** Definitions that a living process serves or that have instances, by name, then the newest version first. */
export const read: Effect.Effect<
  ReadonlyArray<typeof Api.Definition.Type>,
  ProviderError,
  Admin | Database
> = Effect.gen(function*() {
  const admin = yield* Admin
  const counts = yield* admin.count({ byVersion: true })
  const blocked = yield* LiveReport.countBlocked
  const served = (yield* admin.listProcesses).filter(({ isAlive }) => isAlive).flatMap(({ build, orchestrations }) =>
    orchestrations.map((text) => ({ ...parseDefinition(text), build }))
  )
  const { targets } = yield* admin.getPauses
  const names = new Set([
    ...counts.map(({ orchestrationName }) => orchestrationName),
    ...served.map(({ name }) => name)
  ])
  return [...names].sort().map((name) => {
    const ofName = counts.filter(({ orchestrationName }) => orchestrationName === name)
    const versions = new Set<string | null>([
      ...ofName.map(({ orchestrationVersion }) => orchestrationVersion),
      ...served.flatMap((one) => one.name === name && one.version !== undefined ? [one.version] : [])
    ])
    return {
      name,
      versions: [...versions].sort(newestFirst).map((version) => {
        const ofVersion = ofName.filter(({ orchestrationVersion }) => orchestrationVersion === version)
        const of = (status: string) => ofVersion.find((one) => one.status === status)?.instances ?? 0
        const servers = served.filter((one) => one.name === name && one.version === version)
        return {
          version,
          running: of("Running"),
          blocked: blocked.find((one) => one.orchestration === name && one.version === version)?.instances ?? 0,
          completed: of("Completed"),
          failed: of("Failed"),
          cancelled: of("Cancelled"),
          isEstimate: ofVersion.some(({ isEstimate }) => isEstimate),
          servedBy: servers.length,
          builds: [...new Set(servers.map(({ build }) => build))]
        }
      }),
      pauses: targets.flatMap((pause) =>
        pause.target._tag === "Orchestration" && pause.target.name === name ? [Shapes.pause(pause)] : []
      )
    }
  })
})

// internal

const newestFirst = (one: string | null, other: string | null) =>
  (other ?? "").localeCompare(one ?? "", "en", { numeric: true })
