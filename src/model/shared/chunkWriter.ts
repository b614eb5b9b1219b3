/**
 * The text that names who has appended a chunk: the execution for a program; of an activity
 * `<execution>/<first try>/<try>/<delivery>/<random>`.
 */
import type { Writer } from "../ProgressChunk.ts"

/** The beginning of the writers of one call. */
export const callOf = (executionId: number, callId: number): string => `${executionId}/${callId}/`

/** `deliveryId` is random: a shutdown ends deliveries without counting them. */
export const writerOf = (
  call: { readonly executionId: number; readonly callId: number; readonly tryNumber: number },
  deliveryNumber: number,
  deliveryId: string
): string => `${callOf(call.executionId, call.callId)}${call.tryNumber}/${deliveryNumber}/${deliveryId}`

export const decode = (text: string, number: number): Writer => {
  const [executionId, callId, tryNumber, deliveryNumber, deliveryId = ""] = text.split("/")
  return callId === undefined
    ? { _tag: "Program", executionId: Number(executionId) }
    : {
      _tag: "Activity",
      executionId: Number(executionId),
      callId: Number(callId),
      tryNumber: Number(tryNumber),
      deliveryNumber: Number(deliveryNumber),
      deliveryId,
      number
    }
}
