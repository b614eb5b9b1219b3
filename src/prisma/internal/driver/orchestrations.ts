/**
 * Instances: claims, turns, messages and starts.
 */
import * as Effect from "effect/Effect"
import { hash } from "node:crypto"
import { suspectGroups } from "../../../provider/ProviderDriver.ts"
import type {
  FetchOrchestrationItems,
  OptimisticAnswer,
  OptimisticTurn,
  OrchestrationAck,
  OrchestrationStart,
  ProviderDriver,
  Settled,
  StartAnswer,
  UnclaimedTurn
} from "../../../provider/ProviderDriver.ts"
import { Prisma } from "../client.ts"
import {
  abandonRow,
  ackRow,
  activityRow,
  appends,
  attributeRow,
  bigint,
  claimedInstance,
  claimedRows,
  json,
  lateJson,
  makeWorkers,
  messageRow,
  renewalRow,
  turnParts,
  turnRow,
  versionTuple,
  workItemOf
} from "../rows.ts"
import type { ClaimedInstanceRow, HeldRow } from "../rows.ts"
import { plain } from "../statements.ts"
import { Texts, withTexts } from "../texts.ts"
import { claiming, defaultMaxBytes, limitOf } from "./calls.ts"
import type { Calls } from "./calls.ts"

type Driver = ProviderDriver["Service"]

export const orchestrations = ({ answer, insert, rows, settle }: Calls) => ({
  fetchOrchestrationItems: Effect.fnUntraced(
    function*(
      {
        historyLimit,
        isThorough,
        limit,
        lockTimeoutMs,
        maxBytes,
        onAwaited,
        onLocked,
        onNext,
        orphans,
        serves,
        suspects,
        takesOver,
        versions
      }: FetchOrchestrationItems
    ) {
      const programs = serves?.flatMap(({ name, versions }) => versions.map((version) => ({ name, version })))
      const found = yield* rows<ClaimedInstanceRow | HeldRow>(
        "fetchOrchestrationItems",
        "dx_fetch_orchestration_items",
        [
          limitOf("orchestrator_queue", limit, isThorough),
          bigint(lockTimeoutMs),
          versionTuple(versions?.min),
          versionTuple(versions?.max),
          Prisma.sql`${programs?.map(({ name }) => name) ?? null}::text[]`,
          Prisma.sql`${programs?.map(({ version }) => version) ?? null}::text[]`,
          Prisma.sql`${[...suspects ?? suspectGroups]}::integer[]`,
          bigint(maxBytes ?? defaultMaxBytes),
          Prisma.sql`${orphans ?? false}::boolean`,
          Prisma.sql`${takesOver ?? true}::boolean`,
          Prisma.sql`${historyLimit ?? null}::integer`
        ],
        claiming
      )
      return yield* Effect.forEach(claimedRows(found, onLocked, onNext, onAwaited), claimedInstance)
    }
  ),

  ackOrchestrationItems: Effect.fnUntraced(
    function*(acks: ReadonlyArray<OrchestrationAck>) {
      if (acks.length === 0) return []
      return yield* answer<ReadonlyArray<Settled>>(
        "ackOrchestrationItems",
        "dx_ack_orchestration_items",
        withTexts((texts) => [json(acks.map(ackRow(texts))), ...turnParts(acks, texts)]),
        { items: acks.length }
      )
    }
  ),

  advanceOrchestrations: Effect.fnUntraced(
    function*(turns: ReadonlyArray<OptimisticTurn>) {
      if (turns.length === 0) return []
      const workers = makeWorkers()
      const texts = new Texts()
      const toStore = turns.map(({ turn }) => turn)
      const rows = turns.map(({ handOver, instanceId, lastEvent, lastEventId, results, turn }) => ({
        instance_id: instanceId,
        last_event_id: lastEventId,
        last_event_hash: hash("sha256", lastEvent), // it can be as long as a payload
        results: results.length,
        clock_ms: undefined, // set by `withClocks`
        appends: appends(turn, lastEventId),
        ...turnRow(turn, texts),
        ...workers.row(handOver)
      }))
      const results = turns.flatMap(({ instanceId, results }, index) =>
        results.map(({ lockToken, workItem }) => ({
          ack: index + 1,
          token: lockToken,
          instance_id: instanceId,
          ...workItemOf(workItem, texts)
        }))
      )
      return yield* answer<ReadonlyArray<OptimisticAnswer>>(
        "advanceOrchestrations",
        "dx_advance_orchestrations",
        [
          lateJson(() => withClocks(rows, toStore)),
          json(results),
          ...turnParts(toStore, texts),
          workers.sql(),
          texts.sql()
        ],
        { items: turns.length }
      )
    }
  ),

  wakeBlocked: ({ activities, orchestrations }) =>
    Effect.map(
      answer<bigint>("wakeBlocked", "dx_wake_blocked", [
        Prisma.sql`${[...orchestrations]}::text[]`,
        Prisma.sql`${[...activities]}::text[]`
      ], plain),
      Number
    ),

  abandonOrchestrationItems: settle("abandonOrchestrationItems", "dx_abandon_orchestration_items", abandonRow),
  renewOrchestrationItemLocks: settle(
    "renewOrchestrationItemLocks",
    "dx_renew_orchestration_item_locks",
    renewalRow,
    { isRenewal: true }
  ),
  deferMessages: settle("deferMessages", "dx_defer_messages", (item) => ({
    token: item.lockToken,
    ids: item.ids,
    delay_ms: item.delayMs
  }), { isUnflushed: true }),

  enqueueForOrchestrator: (messages) =>
    messages.length === 0 ? Effect.succeed([]) : Effect.map(
      answer<ReadonlyArray<bigint | number>>(
        "enqueueForOrchestrator",
        "dx_enqueue_for_orchestrator",
        withTexts((texts) => [json(messages.map(messageRow(texts)))]),
        { items: messages.length }
      ),
      (refused) => {
        const positions = new Set(refused.map(Number))
        return messages.map((_, index) => positions.has(index + 1) ? "Full" : "Sent")
      }
    ),
  enqueueForWorker: insert("enqueueForWorker", "dx_enqueue_for_worker", activityRow),

  startOrchestrations: Effect.fnUntraced(function*(starts) {
    if (starts.length === 0) return []
    const workers = makeWorkers()
    const texts = new Texts()
    const turns = starts.map(({ firstTurn }) => firstTurn?.turn)
    const rows = starts.map(({ firstTurn }) =>
      firstTurn === undefined ? {} : {
        clock_ms: undefined, // set by `withClocks`
        appends: appends(firstTurn.turn, 0),
        ...turnRow(firstTurn.turn, texts),
        ...workers.row(firstTurn.handOver)
      }
    )
    return yield* answer<ReadonlyArray<StartAnswer>>(
      "startOrchestrations",
      "dx_start_orchestrations",
      [
        json(starts.map((start) => ({
          instance_id: start.instanceId,
          orchestration_name: start.orchestrationName,
          orchestration_version: start.orchestrationVersion,
          ...workItemOf(start.workItem, texts),
          ...start.pinnedVersion,
          delay_ms: start.delayMs,
          attributes: start.attributes?.map(attributeRow),
          limit_key: start.limitKey,
          more: moreOf(start, texts)
        }))),
        turns.some((turn) => turn !== undefined) ? lateJson(() => withClocks(rows, turns)) : json(null),
        ...turnParts(turns, texts),
        workers.sql(),
        texts.sql()
      ],
      { items: starts.length }
    )
  }),

  sweepMessages: ({ after, limit, maxAgeMs }) =>
    Effect.map(
      rows<{ readonly out_deleted: bigint; readonly out_next: string | null }>("sweepMessages", "dx_sweep_messages", [
        bigint(maxAgeMs),
        Prisma.sql`${limit}::integer`,
        Prisma.sql`${after}::text`
      ], plain),
      ([row]) => ({ deleted: Number(row!.out_deleted), next: row!.out_next })
    )
} satisfies Partial<Driver>)

// internal

/** Undefined for a start that has none of them. */
const moreOf = ({ message, replaces, startAtMs }: OrchestrationStart, texts: Texts) =>
  message === undefined && replaces === undefined && startAtMs === undefined ? undefined : {
    start_at_ms: startAtMs,
    replaces,
    message: message === undefined ? undefined : {
      most_waiting: message.bounds?.mostWaiting,
      most_events: message.bounds?.mostEvents,
      ...workItemOf(message.workItem, texts)
    }
  }

/**
 * Asks the clocks of turns when the statement is sent. It writes into the rows, because copies took 20 microseconds
 * for each turn.
 */
const withClocks = (
  rows: ReadonlyArray<{ clock_ms?: number | undefined }>,
  turns: ReadonlyArray<UnclaimedTurn | undefined>
) => {
  rows.forEach((row, i) => void (row.clock_ms = turns[i]?.clockMs?.()))
  return rows
}
