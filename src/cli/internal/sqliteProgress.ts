/**
 * The progress of an import or a comparison, as one line.
 */
import * as Effect from "effect/Effect"
import { age, count } from "../../model/shared/quantities.ts"
import type * as SqliteImport from "../../sqlite/SqliteImport.ts"
import * as Progress from "./Progress.ts"

export const make = Effect.map(Progress.make, ({ report }) => {
  const begun = new Set<SqliteImport.Progress["phase"]>()
  return {
    hasBegun: (phase: SqliteImport.Progress["phase"]) => begun.has(phase),
    report: (progress: SqliteImport.Progress) => {
      const { done, phase, remainingMs, total } = progress
      begun.add(phase)
      const percent = total === 0 ? 100 : Math.floor(done / total * 100)
      const left = remainingMs === null ? "" : `, ${age(remainingMs)} left`
      return report(`${phase}: ${percent} %, ${count(done)} of ${count(total)} rows${left}`, progress)
    }
  }
})
