/**
 * The outbox in PostgreSQL: each operation is one call of one stored function.
 */
import * as Effect from "effect/Effect"
import type { TransactionConnection } from "../../../model/shared/transactionConnection.ts"
import type { ClaimedMessage, NewMessage, OutboxDriver } from "../../../outbox/OutboxDriver.ts"
import type { Database } from "../../Database.ts"
import { Prisma } from "../client.ts"
import { bigint, json } from "../rows.ts"
import * as statements from "../statements.ts"
import { statementsOn } from "../transactionQuery.ts"

export interface Options {
  /** The clock that decides what is due. Defaults to `database`. */
  readonly clock?: "database" | "effect" | undefined
}

export const make = (database: Database["Service"], options: Options): OutboxDriver["Service"] => {
  const { answer, rows } = statements.make(database, options)
  return {
    database,
    clock: options.clock ?? "database",
    ...adding(answer),
    // What a crash of the server undoes is a lease, or a move as a whole, which is then repeated.
    claim: ({ keeps, leaseMs, limit, maxAttempts, queues, token }) =>
      rows<ClaimRow>(
        "claimOutbox",
        "dx_claim_outbox",
        [
          Prisma.sql`${limit}::integer`,
          bigint(leaseMs),
          Prisma.sql`${token}::text`,
          Prisma.sql`${queues}::text[]`,
          Prisma.sql`${maxAttempts ?? null}::integer[]`,
          Prisma.sql`${keeps}::boolean`
        ],
        { isUnflushed: true }
      ).pipe(Effect.map(([row]) => ({
        messages: row!.out_messages,
        moved: new Map(Object.entries(row!.out_moved)),
        isFull: row!.out_is_full,
        nextMs: untilNext(row!),
        unclaimedQueues: row!.out_unclaimed_queues
      }))),
    markSent: (ids) => answer("markSent", "dx_mark_sent", [Prisma.sql`${ids}::bigint[]`], { items: ids.length }),
    defer: (token, deferrals) =>
      Effect.asVoid(answer(
        "deferOutbox",
        "dx_defer_outbox",
        [
          json(deferrals.map(({ error, id, pauseMs }) => ({ id, pause_ms: pauseMs, error }))),
          Prisma.sql`${token}::text`
        ],
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
  }
}

/** Writes messages on a connection of the application. */
export const addingOn = (
  connection: TransactionConnection,
  schema: string
): Adding => adding(statements.make(statementsOn(connection, schema)).answer)

// internal

type Adding = Pick<OutboxDriver["Service"], "add">

const adding = (answer: statements.Statements["answer"]): Adding => ({
  add: (messages) =>
    Effect.asVoid(
      answer("addToOutbox", "dx_add_to_outbox", [encode(messages)], { items: messages.length, isQuiet: true })
    )
})

/** The payloads are JSON already. */
const encode = (messages: ReadonlyArray<NewMessage>) => {
  const encoded = messages.map(({ delayMs, payload, queue }) =>
    `{"queue":${JSON.stringify(queue)},"payload":${payload},"delay_ms":${delayMs}}`
  )
  return Prisma.sql`${`[${encoded.join(",")}]`}::jsonb`
}

interface Next {
  readonly out_next_ms: bigint | null
  readonly out_now_ms: bigint
}

interface ClaimRow extends Next {
  readonly out_messages: ReadonlyArray<ClaimedMessage>
  readonly out_moved: Readonly<Record<string, number>>
  readonly out_is_full: boolean
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
