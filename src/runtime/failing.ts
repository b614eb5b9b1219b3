/**
 * Failures that the runtime decides, and the turns that store them without running any code.
 */
import * as Option from "effect/Option"
import type * as ErrorDetails from "../model/ErrorDetails.ts"
import * as coreVersion from "../model/shared/coreVersion.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { OrchestrationItem, Turn } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import * as turns from "../replay/turn.ts"
import * as batches from "./batch.ts"

/** The failure of an instance after this number of deliveries without a stored turn. */
export const poisonedInstance = (
  item: OrchestrationItem,
  deliveries: number,
  maxAttempts: number
): ErrorDetails.ErrorDetails => ({
  _tag: "Poison",
  attemptCount: deliveries,
  maxAttempts,
  messageType: Option.isSome(item.historyError)
    ? {
      FailedDeserialization: {
        instance: item.instanceId,
        execution_id: item.executionId,
        error: item.historyError.value
      }
    }
    : { Orchestration: { instance: item.instanceId, execution_id: item.executionId } },
  message: Option.getOrElse(
    item.historyError,
    () => "no delivery ended with a stored turn: each time, the process died or its lock expired"
  )
})

/** The failure of an activity after this number of deliveries without an outcome. */
export const poisonedActivity = (
  item: WorkItem.Of<"ActivityExecute">,
  deliveries: number,
  maxAttempts: number
): ErrorDetails.ErrorDetails => ({
  _tag: "Poison",
  attemptCount: deliveries,
  maxAttempts,
  messageType: {
    Activity: {
      instance: item.instance,
      execution_id: item.executionId,
      activity_name: item.name,
      activity_id: item.id
    }
  },
  message: "no delivery ended with an outcome: each time, the process died, its lock expired, the handler " +
    "interrupted itself, or its transaction was not committed"
})

/** The failure of an instance or activity whose data the database refuses. */
export const refusedByStore = (error: ProviderError): ErrorDetails.ErrorDetails => ({
  _tag: "Infrastructure",
  operation: error.operation,
  message: error.reason.message,
  retryable: false
})

/** The turn that fails an execution without running its code. */
export const failedTurn = (item: OrchestrationItem, batch: batches.Batch, details: ErrorDetails.ErrorDetails): Turn =>
  withRejections(
    turns.fail(
      {
        ...item,
        ...(batch._tag === "Run" ? { ...batch, started: named(batch, item) } : { started: batches.unknownStart(item) }),
        version: coreVersion.current
      },
      details,
      { unreadable: Option.isSome(item.historyError) }
    ).turn,
    batch
  )

/** Adds the notices to parents whose child could not start. */
export const withRejections = (turn: Turn, batch: batches.Batch): Turn =>
  batch._tag === "Run" ? { ...turn, orchestratorItems: [...turn.orchestratorItems, ...batch.rejections] } : turn

// internal

/** No code ran that would say the version: where none is asked for, that of the execution before, if there was one. */
const named = ({ started, version }: batches.Run, { orchestrationVersion }: OrchestrationItem) =>
  typeof version === "string" ? started : { ...started, version: orchestrationVersion }
