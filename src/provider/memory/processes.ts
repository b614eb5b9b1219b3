/**
 * The processes that run work. All are runtimes of this process, so each lives until it closes.
 */
import * as Effect from "effect/Effect"
import type { ProviderDriver } from "../ProviderDriver.ts"
import * as tables from "./tables.ts"

export const make = ({ processes }: tables.Tables) =>
  ({
    registerProcess: (process) =>
      tables.statement((now) => {
        processes.set(process.id, { ...process, sinceMs: processes.get(process.id)?.sinceMs ?? now })
        return null
      }),

    removeProcess: (id) => Effect.sync(() => void processes.delete(id))
  }) satisfies Partial<ProviderDriver["Service"]>
