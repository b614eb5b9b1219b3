/**
 * Receipts of SQS, with a check that SQS lacks: after the visibility timeout a receipt handle may still delete the
 * message, or report success and delete nothing.
 *
 * A receipt is `<sign of its queue>.<end of the visibility timeout>.<receipt handle>`. What this process has settled or
 * extended since is kept until the timeout ends.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { QueueError } from "../QueueError.ts"
import { ReceiptExpired, ReceiptInvalid } from "../QueueError.ts"
import { fail } from "../shared/check.ts"
import { signOf } from "../shared/receipts.ts"

export interface Receipts {
  readonly make: (queue: string, handle: string, untilMs: number) => string
  /**
   * The receipt handle, if the message is still hidden from others. Fails with `ReceiptInvalid` or `ReceiptExpired`.
   */
  readonly live: (operation: string, queue: string, receipt: unknown) => Effect.Effect<string, QueueError>
  /** The message is hidden until then; 0 for one that was settled. */
  readonly changed: (receipt: string, untilMs: number, nowMs: number) => void
}

export const make = (): Receipts => {
  const changes = new Map<string, { readonly untilMs: number; readonly forgottenAtMs: number }>()
  /** Changes kept before those of the past are looked for. */
  let most = leastKept

  /** Those whose timeout has ended are expired anyway. */
  const forget = (nowMs: number) => {
    for (const [receipt, { forgottenAtMs }] of changes) if (forgottenAtMs <= nowMs) changes.delete(receipt)
  }

  return {
    make: (queue, handle, untilMs) => `${signOf(queue)}.${untilMs}.${handle}`,
    live: Effect.fnUntraced(function*(operation, queue, receipt) {
      const [, sign, until, handle] = typeof receipt === "string" ? form.exec(receipt) ?? [] : []
      if (handle === undefined || sign !== signOf(queue)) return yield* fail(operation, queue, new ReceiptInvalid({}))
      const untilMs = changes.get(receipt as string)?.untilMs ?? Number(until)
      if (untilMs <= (yield* Clock.currentTimeMillis)) return yield* fail(operation, queue, new ReceiptExpired({}))
      return handle
    }),
    changed: (receipt, untilMs, nowMs) => {
      const ownMs = Number(form.exec(receipt)![2])
      changes.set(receipt, { untilMs, forgottenAtMs: Math.max(untilMs, ownMs) })
      if (changes.size <= most) return
      forget(nowMs)
      most = Math.max(leastKept, 2 * changes.size)
    }
  }
}

// internal

const leastKept = 1000

const form = /^([\da-f]{8})\.(\d{1,16})\.(.+)$/s
