/**
 * What a worker takes from a queue in the database of its tasks.
 */
import type { Received } from "../../queue/Queue.ts"
import type { Claimed } from "./store.ts"

/** A task that was claimed, its message deleted; or a message of which more must be known. */
export type Taken = Received | TakenTask

export interface TakenTask {
  readonly claimed: Claimed
  /** Its lease began no earlier, monotonic milliseconds. */
  readonly claimedMs: number
  /** Of its message. */
  readonly kind: string
}

/** Tasks as `dx_take_tasks` answers with them. */
export type TaskColumns = readonly [
  ids: ReadonlyArray<string>,
  names: ReadonlyArray<string>,
  attempts: ReadonlyArray<number>,
  counted: ReadonlyArray<number>,
  payloads: ReadonlyArray<string>,
  traceContexts: ReadonlyArray<string | null>,
  kinds: ReadonlyArray<string>
]

export const takenTasks = (
  [ids, names, attempts, counted, payloads, traceContexts, kinds]: TaskColumns,
  claimedMs: number
): ReadonlyArray<TakenTask> =>
  ids.map((id, i) => ({
    claimed: {
      out_outcome: "Claimed",
      out_id: id,
      out_name: names[i]!,
      out_attempt: attempts[i]!,
      out_counted: counted[i]!,
      // It takes no suspects.
      out_lost: 0,
      out_payload: payloads[i]!,
      out_trace_context: traceContexts[i]!
    },
    claimedMs,
    kind: kinds[i]!
  }))
