/**
 * Settings of one statement: they end with it.
 */
import { Prisma } from "./client.ts"

/** The value, computed with these settings: `CASE` evaluates its condition first. */
export const during = (settings: ReadonlyArray<Prisma.Sql>, value: Prisma.Sql): Prisma.Sql =>
  settings.length === 0 ? value : Prisma.sql`CASE WHEN ${Prisma.join(settings, " AND ")} THEN ${value} END`

/** Milliseconds. */
export interface LockTimeoutMs {
  /** Of a set of items. */
  readonly set: number
  /** Of one item alone. */
  readonly alone: number
}

/**
 * Long enough for the transactions of this package, which are short. A transaction that holds one row for longer must not
 * delay the other items of the set. One item alone is tried again anyway (`coalescer.ts`): it must not delay the next one.
 */
export const lockTimeoutMs: LockTimeoutMs = { set: 200, alone: 50 }

/** Of a statement with this number of items: longest wait for a database lock, if the connection sets none. */
export const lockTimeout = (timeoutMs: LockTimeoutMs, items: number): Prisma.Sql =>
  Prisma.sql`set_config(
    'lock_timeout',
    COALESCE(
      NULLIF(current_setting('lock_timeout'), '0'),
      ${String(items > 1 ? timeoutMs.set : timeoutMs.alone)}::text
    ),
    true
  ) IS NOT NULL`

/** What the session remembers of its last claim through a whole queue (dx_read_mark) does not count. */
export const withoutMark = (queue: "orchestrator_queue" | "worker_queue"): Prisma.Sql =>
  Prisma.sql`set_config(${`duroxide_prisma.${queue}`}::text, '', false) IS NOT NULL`

/** The triggers and functions that notify leave such a statement out. */
export const quiet = Prisma.sql`set_config('duroxide.quiet', 'on', true) IS NOT NULL`

/**
 * Lets the statement commit without waiting for the disk: only for locks and leases. What a crash of the server undoes is
 * one of them, and one that is lost is one that ran out.
 */
export const unflushed = Prisma.sql`set_config('synchronous_commit', 'off', true) IS NOT NULL`
