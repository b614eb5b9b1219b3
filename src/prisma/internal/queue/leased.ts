/**
 * Messages that a statement leases: arguments of the functions that receive, and what they answer with.
 */
import type { Lease, Leased } from "../../../queue/shared/stored.ts"
import { Prisma } from "../client.ts"

export interface LeasedRow {
  readonly out_ids: ReadonlyArray<bigint> | null
  readonly out_payloads: ReadonlyArray<string> | null
  readonly out_attempts: ReadonlyArray<number> | null
  readonly out_died: number
  readonly out_now_ms: bigint
  readonly out_next_ms: bigint | null
}

export const leasing = ({ limit, queue, token, visibilityMs }: Lease) =>
  [
    Prisma.sql`${limit}::integer`,
    Prisma.sql`${queue}::text`,
    Prisma.sql`${token}::text`,
    Prisma.sql`${visibilityMs}::bigint`
  ] as const

export const leased = (row: LeasedRow): Leased => ({
  ids: row.out_ids,
  payloads: row.out_payloads,
  attempts: row.out_attempts,
  died: row.out_died,
  nowMs: Number(row.out_now_ms),
  nextMs: row.out_next_ms === null ? null : Number(row.out_next_ms)
})
