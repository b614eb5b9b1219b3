/**
 * Limits. Stored functions: each is one transaction, which announces what it has done.
 */
import type { BoundRow, EncodedChanges, LimitRow } from "../../model/shared/limits.ts"
import type { AdminDriver } from "../../provider/AdminDriver.ts"
import { Prisma } from "./client.ts"
import { json } from "./rows.ts"
import { plain, timeless } from "./statements.ts"
import type { Statements } from "./statements.ts"

export const limits = ({ answer }: Pick<Statements, "answer">) => ({
  setLimit: ({ changes, kind, name, replaces }) =>
    answer<boolean>("setLimit", "dx_set_limit", [
      Prisma.sql`${kind}::text`,
      Prisma.sql`${name}::text`,
      json(changesRow(changes)),
      Prisma.sql`${replaces}::boolean`
    ], plain),

  removeLimit: ({ kind, name }) =>
    answer<boolean>(
      "removeLimit",
      "dx_remove_limit",
      [Prisma.sql`${kind}::text`, Prisma.sql`${name}::text`],
      plain
    ),

  readLimits: ({ key, mostKeys, of }) =>
    answer<ReadonlyArray<LimitRow>>("readLimits", "dx_read_limits", [
      Prisma.sql`${of?.kind ?? null}::text`,
      Prisma.sql`${of?.name ?? null}::text`,
      Prisma.sql`${key}::text`,
      Prisma.sql`${mostKeys}::integer`
    ], timeless)
} satisfies Partial<AdminDriver["Service"]>)

// internal

/** JSON leaves out what is undefined. */
const changesRow = ({ eachKey, keys, total }: EncodedChanges) => ({
  total: total === undefined ? undefined : boundRow(total),
  each_key: eachKey === undefined ? undefined : boundRow(eachKey),
  keys: keys && Object.fromEntries(Object.entries(keys).map(([key, bound]) => [key, boundRow(bound)]))
})

const boundRow = (bound: BoundRow | null) =>
  bound === null
    ? null
    : { concurrency: bound.concurrency, rate: bound.rate, rate_ms: bound.rateMs, burst: bound.burst }
