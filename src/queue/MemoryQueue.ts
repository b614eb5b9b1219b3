/**
 * Queues in the memory of one process, for tests: the rules of the other queues, on Effect's `Clock`.
 *
 * @since 0.2.0
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import { Queue } from "./Queue.ts"
import type { Payload, Received } from "./Queue.ts"
import type { QueueError } from "./QueueError.ts"
import { ReceiptExpired } from "./QueueError.ts"
import * as check from "./shared/check.ts"
import { counted, exhausted } from "./shared/counted.ts"
import * as declarations from "./shared/declarations.ts"
import * as queueGauges from "./shared/gauges.ts"
import * as receipts from "./shared/receipts.ts"

/**
 * Options of the layer.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options {
  /** The queues by name. */
  readonly queues: Readonly<Record<string, declarations.Declaration>>
}

/**
 * Empty queues. Fails with `QueueError` if a name or a setting is out of its range.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = (options: Options): Layer.Layer<Queue, QueueError> =>
  Layer.effect(Queue, Effect.tap(make(options), ({ depth, queues }) => queueGauges.make(queues, depth)))

/**
 * Opens the queue for the current scope.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make = Effect.fnUntraced(function*(
  options: Options
): Effect.fn.Return<Queue["Service"], QueueError> {
  const queues = new Map<string, Stored>()
  for (const [name, { maxAttempts }] of Object.entries(yield* declarations.read(options.queues))) {
    queues.set(name, { maxAttempts, messages: new Map(), dead: [], changed: Latch.makeUnsafe() })
  }
  let lastId = 0

  const stored = (operation: string, queue: string) =>
    Effect.map(check.declared(operation, options.queues, queue), () => queues.get(queue)!)

  /** The message of a lease that has not ended. */
  const leased = Effect.fnUntraced(function*(operation: string, queue: string, receipt: string) {
    const to = yield* stored(operation, queue)
    const { id, token } = yield* receipts.parse(operation, queue, receipt)
    const nowMs = yield* Clock.currentTimeMillis
    const message = to.messages.get(Number(id))
    if (message?.token !== token || message.visibleAtMs <= nowMs) {
      return yield* check.fail(operation, queue, new ReceiptExpired({}))
    }
    return { to, message, nowMs }
  })

  return counted(Queue.of({
    name: "memory",
    queues: [...queues.keys()],
    maxDelayMs: declarations.maxDelayMs,
    maxPayloadBytes: declarations.maxPayloadBytes,

    publish: Effect.fnUntraced(function*(queue, payload, options) {
      const to = yield* stored("publish", queue)
      const json = yield* check.payload("publish", queue, payload, declarations.maxPayloadBytes)
      const delayMs = yield* check.delay("publish", queue, options?.delay, declarations.maxDelayMs)
      const nowMs = yield* Clock.currentTimeMillis
      const id = ++lastId
      to.messages.set(id, { id, json, visibleAtMs: nowMs + delayMs, token: null, attempts: 0 })
      announceChange(to)
    }),

    receive: Effect.fnUntraced(function*(queue, options) {
      const from = yield* stored("receive", queue)
      const { maxMessages, visibilityMs, waitMs } = yield* check.receiving(queue, options)
      const untilMs = (yield* Clock.currentTimeMillis) + waitMs
      while (true) {
        const { changed } = from
        const nowMs = yield* Clock.currentTimeMillis
        const { deaths, messages } = take(queue, from, maxMessages, visibilityMs, nowMs)
        if (deaths > 0) yield* exhausted(queue, deaths)
        if (messages.length > 0 || nowMs >= untilMs) return messages
        const nextMs = Math.min(untilMs, ...[...from.messages.values()].map(({ visibleAtMs }) => visibleAtMs))
        yield* Effect.raceFirst(changed.await, Effect.sleep(nextMs - nowMs))
      }
    }),

    ack: Effect.fnUntraced(function*(queue, receipt) {
      const { message, to } = yield* leased("ack", queue, receipt)
      to.messages.delete(message.id)
    }),

    extendVisibility: Effect.fnUntraced(function*(queue, receipt, timeout) {
      yield* stored("extendVisibility", queue)
      const timeoutMs = yield* check.timeout("extendVisibility", queue, "timeout", timeout)
      const { message, nowMs, to } = yield* leased("extendVisibility", queue, receipt)
      message.visibleAtMs = nowMs + timeoutMs
      if (timeoutMs === 0) message.token = null
      announceChange(to)
    }),

    deadLetter: Effect.fnUntraced(function*(queue, { receipt }, _reason) {
      const { message, to } = yield* leased("deadLetter", queue, receipt)
      to.messages.delete(message.id)
      to.dead.push(message)
    }),

    redrive: Effect.fnUntraced(function*(queue, { limit }) {
      const to = yield* stored("redrive", queue)
      const count = yield* check.count("redrive", queue, "limit", limit)
      const nowMs = yield* Clock.currentTimeMillis
      const revived = to.dead.splice(0, count)
      for (const message of revived) {
        to.messages.set(message.id, { ...message, visibleAtMs: nowMs, token: null, attempts: 0 })
      }
      announceChange(to)
      return revived.length
    }),

    depth: Effect.fnUntraced(function*(queue) {
      const { dead, messages } = yield* stored("depth", queue)
      const nowMs = yield* Clock.currentTimeMillis
      const all = [...messages.values()]
      const visible = all.filter(({ visibleAtMs }) => visibleAtMs <= nowMs)
      const hidden = all.filter(({ visibleAtMs }) => visibleAtMs > nowMs)
      return {
        visible: visible.length,
        delayed: hidden.filter(({ token }) => token === null).length,
        inFlight: hidden.filter(({ token }) => token !== null).length,
        dead: dead.length,
        oldestVisibleMs: visible.length === 0
          ? null
          : nowMs - Math.min(...visible.map(({ visibleAtMs }) => visibleAtMs))
      }
    })
  }))
})

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

interface Stored {
  readonly maxAttempts: number
  /** In the order of their publishing. */
  readonly messages: Map<number, Message>
  readonly dead: Array<Message>
  /** Opened by the next change, which puts another one here. */
  changed: Latch.Latch
}

interface Message {
  readonly id: number
  readonly json: string
  visibleAtMs: number
  token: string | null
  attempts: number
}

const announceChange = (to: Stored) => {
  to.changed.openUnsafe()
  to.changed = Latch.makeUnsafe()
}

const take = (queue: string, from: Stored, limit: number, visibilityMs: number, nowMs: number) => {
  const token = receipts.makeToken(queue)
  const messages: Array<Received> = []
  let deaths = 0
  for (const message of from.messages.values()) {
    if (messages.length === limit) break
    if (message.visibleAtMs > nowMs) continue
    if (message.attempts >= from.maxAttempts) {
      from.messages.delete(message.id)
      from.dead.push(message)
      deaths++
      continue
    }
    message.token = token
    message.visibleAtMs = nowMs + visibilityMs
    message.attempts++
    messages.push({
      payload: JSON.parse(message.json) as Payload,
      receipt: receipts.format({ id: String(message.id), token }),
      deliveryCount: message.attempts
    })
  }
  return { deaths, messages }
}
