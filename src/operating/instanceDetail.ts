/**
 * Everything of one instance that an operator looks at.
 */
import * as Effect from "effect/Effect"
import type * as Event from "../model/Event.ts"
import * as CoreVersion from "../model/shared/coreVersion.ts"
import { Ledger } from "../model/shared/ledger.ts"
import * as markers from "../model/shared/markers.ts"
import { setAsideMessages } from "../model/shared/recordedArrivals.ts"
import * as requestSignal from "../model/shared/requestSignal.ts"
import { Admin } from "../provider/Admin.ts"
import type { InstanceInfo } from "../provider/Admin.ts"
import type { ExecutionInfo } from "../provider/AdminDriver.ts"
import type { Wait } from "../provider/Explanation.ts"
import { Provider } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import * as Waits from "../provider/shared/openWaits.ts"
import { unservedOf } from "../provider/shared/unserved.ts"
import type { Definition } from "../provider/shared/unserved.ts"
import { isUnderWay, outcomeOf } from "./outcome.ts"
import type { Status } from "./outcome.ts"

export interface InstanceDetail extends ReturnType<typeof outcomeOf> {
  readonly state: InstanceInfo
  /** The execution that was asked for. */
  readonly execution: ExecutionInfo
  /** The events of that execution. */
  readonly history: ReadonlyArray<Event.Event>
  /** Events of that execution that are signals which were lost. */
  readonly lostSignals: ReadonlySet<number>
  /** Signals of that execution that no process could read, in order. */
  readonly setAside: ReadonlyArray<SetAside>
  /** The newest ones, the newest last. */
  readonly executions: ReadonlyArray<Execution>
  /** How many executions there are. */
  readonly executionCount: number
  /** Open waits of the current execution; none once the instance has ended. */
  readonly waits: ReadonlyArray<Wait>
  /** Messages that no turn has read. */
  readonly messages: ReadonlyArray<Waits.Message>
  /** Signals that have come and that the program has not taken, oldest first. */
  readonly untaken: ReadonlyArray<{ readonly name: string; readonly eventId: number; readonly sinceMs: number }>
  /** Since when it is interrupted, and why. */
  readonly interruption: { readonly sinceMs: number; readonly reason: string } | null
  /** What it could continue with now, if a living process served it. */
  readonly unserved: ReadonlyArray<Definition>
  /** Whether its start waits for a slot of a limit, and which of its activities do: the events that scheduled them. */
  readonly limited: { readonly isStart: boolean; readonly activities: ReadonlySet<number> }
  /** Answers to requests that it keeps: texts of JSON, with `success`, `error` or `failed`. */
  readonly answers: ReadonlyArray<readonly [requestId: string, answer: string]>
  /** Texts of JSON by key, without answers to requests. */
  readonly keyValues: ReadonlyArray<readonly [key: string, value: string]>
  /** The version of the replay rules that its processes must support; null: any. */
  readonly pinnedVersion: string | null
  /** Whose processes alone can run it: those of Duroxide, or of a later release; null: those of this release. */
  readonly foreign: "duroxide" | "later" | null
}

export interface Execution extends Omit<ExecutionInfo, "status"> {
  readonly status: Status
}

export interface SetAside {
  readonly name: string
  readonly eventId: number
  readonly sinceMs: number
  /** The event of the signal that was sent again for it; null without one. */
  readonly sentAgain: number | null
}

/** Fails with `InstanceNotFound`, and with `ExecutionNotFound`. */
export const read = Effect.fnUntraced(function*(instanceId: string, { execution, mostExecutions }: {
  /** Whose history to read. Defaults to the current one. */
  readonly execution?: number | undefined
  readonly mostExecutions: number
}): Effect.fn.Return<InstanceDetail, ProviderError, Admin | Provider> {
  const admin = yield* Admin
  const state = yield* admin.getInstanceInfo(instanceId)
  const outcome = outcomeOf(state)
  const executionId = execution ?? state.executionId
  const chosen = yield* admin.getExecutionInfo(instanceId, executionId)
  const ids = yield* admin.listExecutions(instanceId)
  const executions: Array<ExecutionInfo> = []
  for (const one of ids.slice(-mostExecutions)) executions.push(yield* admin.getExecutionInfo(instanceId, one))
  const history = yield* admin.readHistoryWithExecutionId(instanceId, executionId)
  const current = executionId === state.executionId
    ? history
    : yield* admin.readHistoryWithExecutionId(instanceId, state.executionId)
  const queued = yield* admin.getQueuedWork(instanceId)
  const { interruption, untaken, ...found } = Waits.of(current, queued)
  const mayContinue = isUnderWay(outcome.status)
  // Nothing reaches an instance that has ended, also not the deadline of its interruption.
  const waits = mayContinue ? found.waits : []
  const pin = executions.find((one) => one.executionId === state.executionId)?.pinnedVersion ?? null
  const foreign = foreignOf(pin)
  const values = [...yield* (yield* Provider).getKvAllValues(instanceId)]
  return {
    ...outcome,
    state,
    execution: chosen,
    history,
    lostSignals: new Set(Ledger.of(history).lostSignals),
    setAside: setAsideOf(history),
    executions: executions.map((one) => ({
      ...one,
      // The tables call a cancelled one Failed, too; only the current one can be either.
      status: one.executionId === state.executionId && one.status === "Failed" ? outcome.status : one.status
    })),
    executionCount: ids.length,
    waits,
    messages: found.messages.filter(({ kind }) => mayContinue || kind !== "termination"),
    untaken,
    interruption: interruption ?? null,
    unserved: outcome.status === "Running" && foreign === null
      ? unservedOf(state, queued, waits, yield* admin.listProcesses)
      : [],
    limited: {
      isStart: queued.waitsForLimit !== null,
      activities: new Set(
        queued.activities.flatMap(({ eventId, executionId, waitsForLimit }) =>
          waitsForLimit !== null && executionId === state.executionId ? [eventId] : []
        )
      )
    },
    answers: values.flatMap(([key, value]) =>
      requestSignal.isAnswerKey(key) ? [[requestSignal.idOfAnswer(key), value] as const] : []
    ),
    keyValues: values.filter(([key]) => !requestSignal.isAnswerKey(key)),
    pinnedVersion: pin === null ? null : `${pin.major}.${pin.minor}.${pin.patch}`,
    foreign
  }
})

// internal

/** Ours, and executions without a pin, are what any process here runs. */
const foreignOf = (pin: ExecutionInfo["pinnedVersion"]): InstanceDetail["foreign"] =>
  pin === null || CoreVersion.isWithin(pin, CoreVersion.supported)
    ? null
    : pin.major < CoreVersion.supported.min.major
    ? "duroxide"
    : "later"

const setAsideOf = (history: ReadonlyArray<Event.Event>): ReadonlyArray<SetAside> =>
  [...setAsideMessages(history)].map(([eventId, { data, name }]) => ({
    name,
    eventId,
    sinceMs: history.find((event) => markers.setAsideBy(event) === eventId)!.timestampMs,
    sentAgain: history.find((event) =>
      event.eventId > eventId && "data" in event && event.name === name && event.data === data
    )?.eventId ?? null
  }))
