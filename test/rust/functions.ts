/**
 * The stored functions of duroxide-pg, called as its provider calls them.
 */
import * as Effect from "effect/Effect"
import type * as pg from "pg"
import * as PgServer from "../utils/PgServer.ts"
import type * as Rust from "./Rust.ts"

export interface Instance {
  readonly out_instance_id: string
  readonly out_execution_id: string
  readonly out_history: ReadonlyArray<Record<string, unknown>>
  readonly out_messages: ReadonlyArray<Record<string, Record<string, unknown>>>
  readonly out_lock_token: string
  readonly out_attempt_count: number
}

export interface Activity {
  readonly out_work_item: string
  readonly out_lock_token: string
  readonly out_attempt_count: number
}

export interface Turn {
  readonly events?: ReadonlyArray<{ readonly event_id: number }>
  readonly workerItems?: ReadonlyArray<object>
  readonly messages?: ReadonlyArray<object>
  readonly metadata?: object
  readonly cancelled?: ReadonlyArray<object>
}

/** `LockLost` stands for what these functions raise about a token, `DuplicateEvent` for an event id that exists. */
type Settled = "Done" | "LockLost" | "DuplicateEvent"

/** Versions that its dispatchers ask for: everything up to its own. */
export const versions = [0, 1030] as const

/** On a connection of its own, with the clock of this process, as there. */
export const open = Effect.fnUntraced(function*({ schema, url }: Rust.Shared) {
  const client = yield* PgServer.connect(url)
  yield* Effect.promise(() => client.query(`SET search_path = ${schema}`))
  const now = () => Date.now()
  /** A function among the arguments is called when the statement is sent. */
  const call = <Row extends pg.QueryResultRow>(name: string, ...args: ReadonlyArray<unknown>) =>
    Effect.promise(async () => {
      const values = args.map((arg) => typeof arg === "function" ? arg() as unknown : arg)
      const parameters = args.map((_, i) => `$${i + 1}`).join(", ")
      return (await client.query<Row>(`SELECT * FROM ${name}(${parameters})`, values)).rows
    })
  const settle = (name: string, ...args: ReadonlyArray<unknown>): Effect.Effect<Settled> =>
    call(name, ...args).pipe(
      Effect.as("Done" as const),
      Effect.catchDefect((defect) => {
        if (!(defect instanceof Error)) return Effect.die(defect)
        if (/lock token|already processed/i.test(defect.message)) return Effect.succeed("LockLost" as const)
        if (defect.message.includes(`"history_pkey"`)) return Effect.succeed("DuplicateEvent" as const)
        return Effect.die(defect)
      })
    )
  return {
    fetchInstance: (lockTimeoutMs = 30_000) =>
      Effect.map(
        call<Instance>("fetch_orchestration_item", now, lockTimeoutMs, ...versions),
        ([row]) => row
      ),
    ackInstance: (token: string, turn: Turn) =>
      settle(
        "ack_orchestration_item",
        token,
        now,
        1,
        JSON.stringify(
          (turn.events ?? []).map((event) => ({
            event_id: event.event_id,
            event_type: "Event",
            event_data: JSON.stringify(event)
          }))
        ),
        JSON.stringify(turn.workerItems ?? []),
        JSON.stringify(turn.messages ?? []),
        JSON.stringify(turn.metadata ?? {}),
        JSON.stringify(turn.cancelled ?? [])
      ),
    abandonInstance: (token: string, delayMs: number | null = null) =>
      settle("abandon_orchestration_item", token, now, delayMs),
    renewInstance: (token: string) => settle("renew_orchestration_item_lock", token, now, 30),
    enqueueMessage: (instanceId: string, workItem: string) =>
      call("enqueue_orchestrator_work", instanceId, workItem, () => new Date()),
    fetchActivity: (lockTimeoutMs = 30_000, owner: string | null = null) =>
      Effect.map(
        call<Activity>("fetch_work_item", now, lockTimeoutMs, owner, 30_000, null, "default_only"),
        ([row]) => row
      ),
    ackActivity: (token: string, completion?: { readonly instanceId: string; readonly workItem: string }) =>
      settle("ack_worker", token, completion?.instanceId ?? null, completion?.workItem ?? null, now),
    abandonActivity: (token: string) => settle("abandon_work_item", token, now),
    renewActivity: (token: string) => settle("renew_work_item_lock", token, now, 30)
  }
})

export type Functions = Effect.Success<ReturnType<typeof open>>
