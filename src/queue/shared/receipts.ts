/**
 * Receipts of queues that this package stores: `<message id>.<token of the lease>`. A token begins with a sign of its
 * queue, so that a receipt of another queue is refused without a look at the store.
 */
import * as Effect from "effect/Effect"
import { createHash, randomUUID } from "node:crypto"
import type { QueueError } from "../QueueError.ts"
import { ReceiptInvalid } from "../QueueError.ts"
import { fail } from "./check.ts"

export interface Receipt {
  /** A number of up to 18 digits. */
  readonly id: string
  readonly token: string
}

/** A new token for leases of the queue: the form of a UUID, random but for its first eight digits. */
export const makeToken = (queue: string): string => signOf(queue) + randomUUID().slice(8)

export const format = ({ id, token }: Receipt): string => `${id}.${token}`

/** Undefined unless it is a receipt of the queue. */
export const read = (queue: string, receipt: unknown): Receipt | undefined => {
  const [, id, token] = typeof receipt === "string" ? form.exec(receipt) ?? [] : []
  return id === undefined || token?.startsWith(signOf(queue)) !== true ? undefined : { id, token }
}

/** Fails with `ReceiptInvalid`. */
export const parse = (operation: string, queue: string, receipt: unknown): Effect.Effect<Receipt, QueueError> =>
  Effect.suspend(() => {
    const parsed = read(queue, receipt)
    return parsed === undefined ? fail(operation, queue, new ReceiptInvalid({})) : Effect.succeed(parsed)
  })

/** The first eight hexadecimal digits of a hash of its name. */
export const signOf = (queue: string): string => {
  let sign = signs.get(queue)
  if (sign === undefined) {
    sign = createHash("sha256").update(queue, "utf8").digest("hex").slice(0, 8)
    signs.set(queue, sign)
  }
  return sign
}

// internal

const form = /^([1-9]\d{0,17})\.([\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12})$/

const signs = new Map<string, string>()
