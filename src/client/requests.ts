/**
 * Requests of a client: the question is sent as a message, the answer awaited as a value of the instance.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type * as Event from "../model/Event.ts"
import { problemOfName } from "../model/shared/identifiers.ts"
import { Ledger } from "../model/shared/ledger.ts"
import type { Payload as Codec, PayloadMismatch, PayloadTooLarge } from "../model/shared/payload.ts"
import * as requestSignal from "../model/shared/requestSignal.ts"
import * as sealed from "../model/shared/sealed.ts"
import * as tracing from "../model/shared/tracing.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { Provider } from "../provider/Provider.ts"
import { InvalidInput, ProviderError } from "../provider/ProviderError.ts"
import { checkInstanceId, describeSend, producer, timeoutOf } from "./calls.ts"
import { InstanceEnded, RequestFailed, WaitTimeout } from "./errors.ts"

/**
 * Options of a request.
 *
 * @category models
 * @since 0.3.0
 */
export interface RequestOptions {
  /**
   * Names the question, so that it is answered once even if it is sent several times. At most 256 bytes. All requests
   * of an instance share the ids. Defaults to a random UUID.
   */
  readonly requestId?: string | undefined
  /** Longest wait for the answer; then `WaitTimeout`, and the instance keeps the question. Defaults to no limit. */
  readonly timeout?: Duration.Input | undefined
}

/**
 * Why a request has no answer, besides the refusal of its program.
 *
 * @category errors
 * @since 0.3.0
 */
export type RequestError =
  | InstanceEnded
  | RequestFailed
  | WaitTimeout
  | PayloadMismatch
  | PayloadTooLarge
  | ProviderError

/** What a client needs of a `Request`. */
export interface Definition<P, S, E> {
  readonly name: string
  readonly codecs: { readonly payload: Codec<P>; readonly success: Codec<S>; readonly error: Codec<E> }
}

export const ask = Effect.fnUntraced(
  function*<P, S, E>(
    provider: Provider["Service"],
    { codecs, name }: Definition<P, S, E>,
    instanceId: string,
    payload: P,
    options: RequestOptions | undefined
  ): Effect.fn.Return<S, E | RequestError> {
    yield* checkInstanceId(operation, instanceId)
    const timeout = yield* timeoutOf(operation, options?.timeout)
    const id = options?.requestId ?? globalThis.crypto.randomUUID()
    const problem = problemOfName(id, maxIdBytes)
    if (problem !== undefined) {
      return yield* new ProviderError({ operation, reason: new InvalidInput({ field: "requestId", problem }) })
    }
    const question = { id, payload: yield* codecs.payload.encode(payload) }
    const signal = requestSignal.nameOf(name)
    yield* describeSend("request", name, instanceId)
    const message = yield* tracing.withTraceparent<WorkItem.Of<"QueueMessage">>({
      _tag: "QueueMessage",
      instance: instanceId,
      name: signal,
      data: requestSignal.encode(question)
    })
    const startedMs = yield* Clock.currentTimeMillis
    const asked = Effect.gen(function*() {
      yield* provider.enqueueForOrchestrator({ message, delay: Option.none() })
      const elapsed = Duration.millis((yield* Clock.currentTimeMillis) - startedMs)
      return yield* provider.awaitProgress({
        instanceId,
        key: requestSignal.answerKey(id),
        timeout: timeout === undefined ? undefined : Duration.max(Duration.zero, Duration.subtract(timeout, elapsed)),
        until: ({ value }) => value
      })
    })
    // The instance takes the question once, however often it arrives.
    const answer = yield* Effect.retry(asked, {
      while: (error) =>
        Effect.map(
          Clock.currentTimeMillis,
          // The next pause is about as long as all until now.
          (nowMs) =>
            isRepeatable(error) && (timeout === undefined || 2 * (nowMs - startedMs) < Duration.toMillis(timeout))
        ),
      schedule: repeats,
      times: 6
    })
    if (answer._tag === "Ended") return yield* new InstanceEnded({ instanceId, waitedFor: "answer" })
    let text: string
    if (answer._tag === "Found") text = answer.found
    else {
      const { answer, ...progress } = yield* progressOf(provider, instanceId, signal, id)
      if (answer === undefined) {
        const timeoutMs = Duration.toMillis(timeout!)
        return yield* new WaitTimeout({ instanceId, waitedFor: "answer", timeoutMs, request: name, ...progress })
      }
      text = answer
    }
    if (sealed.isSealed(text)) return yield* codecs.success.decode(text)
    const decoded = requestSignal.decodeAnswer(text)
    switch (decoded._tag) {
      case "Success":
        return yield* codecs.success.decode(decoded.value)
      case "Refused":
        return yield* Effect.flatMap(codecs.error.decode(decoded.error), (error) => Effect.fail(error))
      case "Failed":
        return yield* new RequestFailed({ instanceId, request: name, requestId: id, problem: decoded.problem })
    }
  },
  (self) => Effect.withSpan(tracing.endingBare(self), operation, producer)
)

// internal

const operation = "Client.request"

const maxIdBytes = 256

/** After each of these the question may be stored or not. */
const isRepeatable = (error: ProviderError) => error.isRetryable

/** About 100 milliseconds to 3 seconds, six times. */
const repeats = Schedule.jittered(Schedule.exponential("100 millis"))

/** How far a question has come, from the history of the current execution; or the answer, if it was not kept. */
const progressOf = (
  provider: Provider["Service"],
  instanceId: string,
  signal: string,
  id: string
): Effect.Effect<{ readonly answer?: string; readonly progress?: NonNullable<WaitTimeout["progress"]> }> =>
  Effect.gen(function*() {
    if (Option.isNone(yield* provider.readInstance(instanceId))) return { progress: "NotStarted" } as const
    const events = yield* provider.read(instanceId)
    const answer = events.findLast((event) =>
      event._tag === "KeyValueSet" && event.key === requestSignal.answerKey(id)
    ) as Event.Of<"KeyValueSet"> | undefined
    if (answer !== undefined) return { answer: answer.value }
    const isQuestion = (event: Event.Event) =>
      event._tag === "ExternalEventPersistent" && event.name === signal &&
      requestSignal.decode(event.data)?.id === id
    if (!events.some(isQuestion)) return { progress: "NotReceived" } as const
    if (!Ledger.of(events).unread().some(isQuestion)) return { progress: "NotAnswered" } as const
    const isServed = events.some((event) => event._tag === "ExternalSubscribedPersistent" && event.name === signal)
    return { progress: isServed ? "NotTaken" : "NotServed" } as const
  }).pipe(Effect.orElseSucceed(() => ({})))
