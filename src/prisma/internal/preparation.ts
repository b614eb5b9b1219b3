/**
 * What a process does with the schema before its first statement.
 */
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import type { MigrationError } from "../MigrationError.ts"
import * as Migrator from "../Migrator.ts"

/** As in `PrismaProvider.Options`, where they are documented. */
interface Options {
  readonly url: string | Redacted.Redacted<string>
  readonly directUrl?: string | Redacted.Redacted<string> | undefined
  readonly schema?: string | undefined
  readonly migrate?: "apply" | "verify" | "adopt" | "none" | undefined
}

export const layer = (options: Options): Layer.Layer<never, MigrationError> => {
  const target = { url: options.directUrl ?? options.url, schema: options.schema }
  switch (options.migrate ?? "apply") {
    case "apply":
      return Migrator.layer(target)
    case "verify":
      return Migrator.layerVerify(target)
    case "adopt":
      return Migrator.layerAdopt(target)
    case "none":
      return Layer.empty
  }
}
