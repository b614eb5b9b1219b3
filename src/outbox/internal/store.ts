/**
 * The statements of a publisher, each one call of one stored function.
 */
import * as Effect from "effect/Effect"
import { Prisma } from "../../prisma/internal/client.ts"
import { bigint, json } from "../../prisma/internal/rows.ts"
import type { Statements } from "../../prisma/internal/statements.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { Payload } from "../../queue/Queue.ts"

/** A claimed message. */
export interface Message {
  readonly id: string
  readonly queue: string
  readonly payload: Payload
  /** This one included. */
  readonly attempts: number
}

export interface Claim {
  /** Those to send. */
  readonly messages: ReadonlyArray<Message>
  /** How many messages of each queue were moved to it. */
  readonly moved: ReadonlyMap<string, number>
  /** There may be more now. */
  readonly isFull: boolean
  /** When to look again, milliseconds from now; null if there is nothing to wait for. */
  readonly nextMs: number | null
  /** When the next task needs a look, milliseconds from now, perhaps in the past; null: none, or it was not asked for. */
  readonly sweepMs: number | null
  /** Queues that were not asked for, whose messages should have been claimed over a minute ago. Empty for a full claim. */
  readonly unclaimedQueues: ReadonlyArray<string>
}

/** A message that was not sent. Without an error it was not tried. */
export interface Deferral {
  readonly id: string
  readonly pauseMs: number
  readonly error: string | null
}

/** What waits in the outbox, of each queue of the 10,000 messages that are due first. */
export interface Backlog {
  readonly waiting: number
  readonly delayed: number
  readonly failing: number
  readonly oldestAgeMs: number
}

export interface OutboxStore {
  readonly claim: (options: {
    readonly limit: number
    readonly leaseMs: number
    readonly token: string
    /** Messages of other queues stay. */
    readonly queues: ReadonlyArray<string>
    /** Of each of these queues, if all are in this database: then the statement moves the messages. */
    readonly maxAttempts: ReadonlyArray<number> | undefined
    /** Asks for `sweepMs`. */
    readonly looks: boolean
    /** Whether moved messages stay, marked as sent; else they are deleted. */
    readonly keeps: boolean
  }) => Effect.Effect<Claim, ProviderError>
  /** Answers with the ids of those that another transaction has locked. */
  readonly markSent: (ids: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<string>, ProviderError>
  readonly defer: (token: string, deferrals: ReadonlyArray<Deferral>) => Effect.Effect<void, ProviderError>
  readonly clean: (options: { readonly keepMs: number; readonly limit: number }) => Effect.Effect<
    { readonly deleted: number; readonly nextMs: number | null },
    ProviderError
  >
  readonly readBacklog: Effect.Effect<Backlog, ProviderError>
}

export const make = ({ answer, rows }: Statements): OutboxStore => ({
  // What a crash of the server undoes is a lease, or a move as a whole, which is then repeated.
  claim: ({ keeps, leaseMs, limit, looks, maxAttempts, queues, token }) =>
    rows<ClaimRow>(
      "claimOutbox",
      "dx_claim_outbox",
      [
        Prisma.sql`${limit}::integer`,
        bigint(leaseMs),
        Prisma.sql`${token}::text`,
        Prisma.sql`${queues}::text[]`,
        Prisma.sql`${maxAttempts ?? null}::integer[]`,
        Prisma.sql`${looks}::boolean`,
        Prisma.sql`${keeps}::boolean`
      ],
      { isUnflushed: true }
    ).pipe(Effect.map(([row]) => ({
      messages: row!.out_messages,
      moved: new Map(Object.entries(row!.out_moved)),
      isFull: row!.out_is_full,
      nextMs: untilNext(row!),
      sweepMs: row!.out_sweep_ms === null ? null : Number(row!.out_sweep_ms - row!.out_now_ms),
      unclaimedQueues: row!.out_unclaimed_queues
    }))),
  markSent: (ids) => answer("markSent", "dx_mark_sent", [Prisma.sql`${ids}::bigint[]`], { items: ids.length }),
  defer: (token, deferrals) =>
    Effect.asVoid(answer(
      "deferOutbox",
      "dx_defer_outbox",
      [json(deferrals.map(({ error, id, pauseMs }) => ({ id, pause_ms: pauseMs, error }))), Prisma.sql`${token}::text`],
      { items: deferrals.length }
    )),
  clean: ({ keepMs, limit }) =>
    rows<CleanRow>("cleanOutbox", "dx_clean_outbox", [bigint(keepMs), Prisma.sql`${limit}::integer`]).pipe(
      Effect.map(([row]) => ({ deleted: row!.out_deleted, nextMs: untilNext(row!) }))
    ),
  readBacklog: rows<BacklogRow>("readOutbox", "dx_read_outbox", [Prisma.sql`10000::integer`]).pipe(
    Effect.map(([row]) => ({
      waiting: Number(row!.out_waiting),
      delayed: Number(row!.out_delayed),
      failing: Number(row!.out_failing),
      oldestAgeMs: Number(row!.out_oldest_age_ms)
    }))
  )
})

// internal

interface Next {
  readonly out_next_ms: bigint | null
  readonly out_now_ms: bigint
}

interface ClaimRow extends Next {
  readonly out_messages: ReadonlyArray<Message>
  readonly out_moved: Readonly<Record<string, number>>
  readonly out_is_full: boolean
  readonly out_sweep_ms: bigint | null
  readonly out_unclaimed_queues: ReadonlyArray<string>
}

interface CleanRow extends Next {
  readonly out_deleted: number
}

interface BacklogRow {
  readonly out_waiting: bigint
  readonly out_delayed: bigint
  readonly out_failing: bigint
  readonly out_oldest_age_ms: bigint
}

const untilNext = ({ out_next_ms: next, out_now_ms: now }: Next): number | null =>
  next === null ? null : Math.max(0, Number(next - now))
