/**
 * Reads, and `appendHistory` for tools and tests.
 */
import * as Effect from "effect/Effect"
import type { PausedRow } from "../../../model/shared/pauses.ts"
import type { EndedInstance, InstanceProgress, ProviderDriver } from "../../../provider/ProviderDriver.ts"
import { Prisma } from "../client.ts"
import {
  backlog,
  bigint,
  endedInstance,
  eventRow,
  instanceProgress,
  instanceState,
  json,
  liveLocks,
  nextDue,
  pauses,
  progressRow
} from "../rows.ts"
import type {
  BacklogRow,
  EndedInstanceRow,
  HistoryPageRow,
  InstanceStateRow,
  LiveLocksRow,
  NextDueRow,
  ProgressRow,
  StoredSizesRow
} from "../rows.ts"
import { plain, timeless } from "../statements.ts"
import { withTexts } from "../texts.ts"
import { defaultMaxBytes } from "./calls.ts"
import type { Calls } from "./calls.ts"

type Driver = ProviderDriver["Service"]

export const reads = ({ answer, rows: rowsOf }: Calls) => ({
  readHistory: Effect.fnUntraced(function*({ executionId, instanceId }) {
    const texts: Array<string> = []
    let last: HistoryPageRow | undefined
    do {
      const rows: ReadonlyArray<HistoryPageRow> = yield* rowsOf<HistoryPageRow>("readHistory", "dx_read_history", [
        Prisma.sql`${instanceId}::text`,
        Prisma.sql`${last?.out_execution_id ?? executionId}::bigint`,
        Prisma.sql`${last?.out_event_id ?? 0}::bigint`,
        bigint(defaultMaxBytes)
      ], timeless)
      for (const row of rows) texts.push(row.out_event_data)
      last = rows.at(-1)
    } while (last?.out_is_last === false)
    return texts
  }),

  appendHistory: ({ executionId, history, instanceId }) =>
    history.length === 0
      ? Effect.void
      : Effect.asVoid(answer<bigint>(
        "appendHistory",
        "dx_append_history",
        withTexts((texts) => [
          Prisma.sql`${instanceId}::text`,
          bigint(executionId),
          json(history.map(eventRow(texts)))
        ]),
        plain
      )),

  readInstances: Effect.fnUntraced(function*(instanceIds) {
    if (instanceIds.length === 0) return []
    const rows = yield* rowsOf<InstanceStateRow>("readInstances", "dx_read_instances", [
      Prisma.sql`${[...instanceIds]}::text[]`
    ], plain)
    return yield* Effect.forEach(rows, instanceState)
  }),

  readEnds: Effect.fnUntraced(function*(instanceIds) {
    const ended: Array<EndedInstance> = []
    let asked = instanceIds
    while (asked.length > 0) {
      const rows = yield* rowsOf<EndedInstanceRow>("readEnds", "dx_read_ends", [
        Prisma.sql`${[...asked]}::text[]`,
        bigint(defaultMaxBytes)
      ], timeless)
      const found = rows.map(endedInstance)
      ended.push(...found)
      if (rows.at(-1)?.out_is_last !== false) break
      const known = new Set(found.map(({ instanceId }) => instanceId))
      asked = asked.filter((instanceId) => !known.has(instanceId))
    }
    return ended
  }),

  readProgress: Effect.fnUntraced(function*(items) {
    const found: Array<InstanceProgress | null> = items.map(() => null)
    let asked = items.map((item, index) => ({ ...item, index }))
    while (asked.length > 0) {
      const rows: ReadonlyArray<ProgressRow> = yield* rowsOf<ProgressRow>("readProgress", "dx_read_progress", [
        json(asked.map(progressRow)),
        bigint(defaultMaxBytes)
      ], timeless)
      const last = rows.at(-1)
      for (const row of rows) {
        const { index, instanceId } = asked[row.out_index - 1]!
        found[index] = yield* instanceProgress(instanceId, row)
      }
      if (last?.out_is_last !== false) break
      asked = asked.slice(last.out_index)
    }
    return found
  }),

  readKeyValues: ({ instanceId, key }) =>
    Effect.map(
      rowsOf<{ readonly out_key: string; readonly out_value: string }>("readKeyValues", "dx_read_key_values", [
        Prisma.sql`${instanceId}::text`,
        Prisma.sql`${key}::text`
      ], timeless),
      (rows) => rows.map((row) => ({ key: row.out_key, value: row.out_value }))
    ),

  readBacklog: ({ limit }) =>
    Effect.map(
      rowsOf<BacklogRow>("readBacklog", "dx_read_backlog", [Prisma.sql`${limit}::integer`], plain),
      ([row]) => backlog(row!)
    ),

  readInstanceStats: (instanceId) =>
    Effect.map(
      rowsOf<StoredSizesRow>("readInstanceStats", "dx_read_instance_stats", [
        Prisma.sql`${instanceId}::text`
      ], timeless),
      ([row]) =>
        row === undefined ? null : {
          eventCount: Number(row.out_event_count),
          historyBytes: Number(row.out_history_bytes),
          firstEvent: row.out_first_event,
          keyCount: Number(row.out_key_count),
          valueBytes: Number(row.out_value_bytes)
        }
    ),

  readNextDue: Effect.map(
    rowsOf<NextDueRow>("readNextDue", "dx_read_next_due", [], plain),
    ([row]) => nextDue(row!)
  ),

  readPaused: Effect.map(
    answer<ReadonlyArray<PausedRow>>("readPaused", "dx_read_paused", [
      Prisma.sql`${["orchestration", "activity", "tag", "everything"]}::text[]`
    ], timeless),
    pauses
  ),

  readLocks: Effect.map(
    rowsOf<LiveLocksRow>("readLocks", "dx_read_locks", [], plain),
    ([row]) => liveLocks(row!)
  )
} satisfies Partial<Driver>)
