/**
 * The migrations of this release. They are part of the code: a bundle has no folder beside it, and must not mistake the
 * application's migrations for ours.
 */
import * as Context from "effect/Context"
import { createHash } from "node:crypto"
import type { All, Migration } from "./migration.ts"
import * as generated from "./migrations.generated.ts"

/** The migrations that `Migrator` applies; only tests replace them. */
export const Migrations = Context.Reference<All>("duroxide-prisma/prisma/migrations/Migrations", {
  defaultValue: () => generated.migrations
})

/** As the Prisma CLI computes it. */
export const checksum = ({ sql }: Migration): string => createHash("sha256").update(sql).digest("hex")
