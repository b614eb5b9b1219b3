/**
 * The migrations of this release. They are part of the code: a bundle has no folder beside it, and must not mistake the
 * application's migrations for ours.
 */
import * as Context from "effect/Context"
import { createHash } from "node:crypto"
import type { Manifest, Migration, Release } from "./migration.ts"
import { release } from "./migrations.generated.ts"

/** The migrations that `Migrator` applies; only tests replace them. */
export const Migrations = Context.Reference<Release>("duroxide-prisma/prisma/migrations/Migrations", {
  defaultValue: () => release
})

/** The checksum that the Prisma CLI records. */
export const checksum = ({ sql }: Migration): string => createHash("sha256").update(sql).digest("hex")

type Named = "tables" | "indexes" | "functions" | "triggers" | "types"

/** Names of the objects that migrations create, each once. */
export const created = (kind: Named, migrations: ReadonlyArray<{ readonly manifest: Manifest }>) => [
  ...new Set(migrations.flatMap(({ manifest }) => manifest[kind]))
]
