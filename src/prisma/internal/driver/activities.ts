/**
 * Activities and their sessions.
 */
import * as Effect from "effect/Effect"
import type { TransactionConnection } from "../../../model/shared/transactionConnection.ts"
import { suspectGroups } from "../../../provider/ProviderDriver.ts"
import type { FetchWorkItems, ProviderDriver, Settled, WorkItemRenewed } from "../../../provider/ProviderDriver.ts"
import { Prisma } from "../client.ts"
import {
  abandonRow,
  acceptedTags,
  bigint,
  claimedRows,
  claimedWorkItem,
  completionRow,
  json,
  renewalRow
} from "../rows.ts"
import type { ClaimedWorkItemRow, HeldRow } from "../rows.ts"
import { plain } from "../statements.ts"
import type { Statements } from "../statements.ts"
import { withTexts } from "../texts.ts"
import { claiming, limitOf } from "./calls.ts"
import type { Calls } from "./calls.ts"

type Driver = ProviderDriver["Service"]

export interface Within {
  (connection: TransactionConnection): Pick<Statements, "answer">
  /** This process announces what it stores, after the commit. */
  readonly isQuiet: boolean
}

/** `within` calls stored functions on a connection of the application; absent on such a connection. */
export const activities = ({ answer, rows, settle }: Calls, within?: Within) => ({
  fetchWorkItems: Effect.fnUntraced(
    function*(
      { activities, isThorough, limit, lockTimeoutMs, onAwaited, onLocked, onNext, session, suspects, tags, takesOver }:
        FetchWorkItems
    ) {
      if (tags._tag === "None") return []
      const found = yield* rows<ClaimedWorkItemRow | HeldRow>("fetchWorkItems", "dx_fetch_work_items", [
        limitOf("worker_queue", limit, isThorough),
        bigint(lockTimeoutMs),
        Prisma.sql`${tags._tag !== "Tags"}::boolean`,
        Prisma.sql`${acceptedTags(tags)}::text[]`,
        Prisma.sql`${session?.workerId ?? null}::text`,
        bigint(session?.lockTimeoutMs ?? null),
        Prisma.sql`${activities === undefined ? null : [...activities]}::text[]`,
        Prisma.sql`${[...suspects ?? suspectGroups]}::integer[]`,
        Prisma.sql`${session?.maxNew ?? null}::integer`,
        Prisma.sql`${takesOver ?? true}::boolean`
      ], claiming)
      return claimedRows(found, onLocked, onNext, onAwaited).map(claimedWorkItem)
    }
  ),

  ackWorkItems: (items) =>
    items.length === 0
      ? Effect.succeed<ReadonlyArray<Settled>>([])
      : answer<ReadonlyArray<Settled>>(
        "ackWorkItems",
        "dx_ack_work_items",
        withTexts((texts) => [json(items.map(completionRow(texts)))]),
        { items: items.length }
      ),
  ...(within !== undefined && {
    ackWorkItemWithin: ({ completion, connection, lockToken }) =>
      Effect.map(
        within(connection).answer<ReadonlyArray<Settled>>(
          "ackWorkItemWithin",
          "dx_ack_work_items",
          withTexts((texts) => [json([completionRow(texts)({ lockToken, completion })])]),
          // The settings of a write would outlast the statement, in a transaction that is not ours.
          { kind: "plain", isQuiet: within.isQuiet }
        ),
        ([settled]) => settled!
      )
  } satisfies Partial<Driver>),
  abandonWorkItems: settle("abandonWorkItems", "dx_abandon_work_items", abandonRow),

  renewWorkItemLocks: (items) =>
    items.length === 0
      ? Effect.succeed<ReadonlyArray<WorkItemRenewed>>([])
      : answer<ReadonlyArray<WorkItemRenewed>>(
        "renewWorkItemLocks",
        "dx_renew_work_item_locks",
        [json(items.map((item) => ({ ...renewalRow(item), sufficient_ms: item.sufficientMs })))],
        { items: items.length, isRenewal: true }
      ),

  renewSessionLocks: ({ extendForMs, idleTimeoutMs, workerIds }) =>
    workerIds.length === 0 ? Effect.succeed(0) : Effect.map(
      answer<bigint>("renewSessionLocks", "dx_renew_session_locks", [
        Prisma.sql`${[...workerIds]}::text[]`,
        bigint(extendForMs),
        bigint(idleTimeoutMs)
      ], { ...plain, isRenewal: true }),
      Number
    ),

  cleanupOrphanedSessions: Effect.map(
    answer<bigint>("cleanupOrphanedSessions", "dx_cleanup_orphaned_sessions", [], plain),
    Number
  )
} satisfies Partial<Driver>)
