/**
 * Settings of one statement: they end with it.
 */
import { Prisma } from "./client.ts"

// Milliseconds, see `lockTimeout`. `commitsPatiently` knows them by these values, which hardly any application sets.
const ofSetMs = 203
const aloneMs = 53

/** The value, computed with these settings: `CASE` evaluates its condition first. */
export const during = (settings: ReadonlyArray<Prisma.Sql>, value: Prisma.Sql): Prisma.Sql =>
  settings.length === 0 ? value : Prisma.sql`CASE WHEN ${Prisma.join(settings, " AND ")} THEN ${value} END`

/**
 * Longest wait for a database lock in a statement with this number of items, if the connection sets none.
 *
 * Long enough for the short transactions of this package. A transaction that holds one row for longer must not delay
 * the other items of the set. A single item is tried again anyway (`coalescer.ts`), and must not delay the next one.
 */
export const lockTimeout = (items: number): Prisma.Sql => items > 1 ? lockTimeoutOfSet : lockTimeoutAlone

/**
 * A column that PostgreSQL evaluates after the call: it ends the short `lockTimeout`. Commits that notify happen one at
 * a time, and the short timeout would end that wait. Meanwhile the statement keeps its rows and its connection.
 */
export const commitsPatiently = `CASE
    WHEN current_setting('lock_timeout') IN ('${ofSetMs}ms', '${aloneMs}ms')
    THEN set_config('lock_timeout', current_setting('statement_timeout'), true)
  END`

/** What the session remembers of its last claim through a whole queue (dx_read_mark) does not count. */
export const withoutMark = (queue: "orchestrator_queue" | "worker_queue"): Prisma.Sql =>
  Prisma.sql`set_config(${`duroxide_prisma.${queue}`}::text, '', false) IS NOT NULL`

/** The triggers and functions that notify leave such a statement out. */
export const quiet = Prisma.sql`set_config('duroxide.quiet', 'on', true) IS NOT NULL`

/**
 * Lets the statement commit without waiting for the disk. Only for locks and leases: a crash of the server may undo
 * one, which then counts as one that ran out.
 */
export const unflushed = Prisma.sql`set_config('synchronous_commit', 'off', true) IS NOT NULL`

// internal

const lockTimeoutOf = (ms: number) =>
  Prisma.sql`set_config(
    'lock_timeout',
    COALESCE(NULLIF(current_setting('lock_timeout'), '0'), ${String(ms)}::text),
    true
  ) IS NOT NULL`

const lockTimeoutOfSet = lockTimeoutOf(ofSetMs)

const lockTimeoutAlone = lockTimeoutOf(aloneMs)
