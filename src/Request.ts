/**
 * Requests: questions that a client asks a running instance, with typed answers.
 *
 * A question is a message that the instance keeps until its program takes it, as it keeps signals. Its request id names
 * it: the program takes the same question once, even if it is sent several times. The answer is stored with the turn
 * that gives it. After continue-as-new, the next execution gets the questions that have no answer.
 *
 * @since 0.3.0
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Semaphore from "effect/Semaphore"
import { logDeath } from "./model/shared/defect.ts"
import { checkNameUnsafe } from "./model/shared/definitions.ts"
import * as payloads from "./model/shared/payload.ts"
import type {
  Payload as Codec,
  PayloadArgument,
  PayloadInput,
  PayloadSchema,
  SchemaOf
} from "./model/shared/payload.ts"
import * as requestSignal from "./model/shared/requestSignal.ts"
import * as sealed from "./model/shared/sealed.ts"
import { valueBytes } from "./model/shared/valueBytes.ts"
import { decoded, engine } from "./replay/context.ts"
import type { OrchestrationContext, WithoutServices } from "./replay/context.ts"
import { maxValueBytes } from "./replay/limits.ts"

/**
 * A named request with the Schemas of its payload, its answer and its refusal.
 *
 * @category models
 * @since 0.3.0
 */
export interface Request<
  in out Payload extends PayloadSchema,
  in out Success extends PayloadSchema,
  in out Error extends PayloadSchema
> {
  readonly name: string
  readonly payload: Payload
  readonly success: Success
  readonly error: Error
  /**
   * Takes the oldest question, or waits for the next one. The caller waits until the program answers or refuses the
   * question. Concurrent waits receive questions in the order of their calls.
   */
  readonly take: Effect.Effect<Question<Payload["Type"], Success["Type"], Error["Type"]>, never, OrchestrationContext>
  /**
   * Answers all questions from now on with what `handler` returns, or refuses them with its failure. Runs in the
   * background of the program, and ends with it.
   *
   * **Details**
   *
   * The handler is a part of the program: it may run activities, wait and sleep. A handler that dies answers with
   * `RequestFailed`, and the program continues.
   *
   * **Gotchas**
   *
   * An execution that continues as new interrupts its handlers. The next execution takes their questions again, so the
   * activities of the handlers run again.
   */
  readonly serve: <R = never>(
    handler:
      & ((payload: Payload["Type"]) => Effect.Effect<Success["Type"], Error["Type"], R>)
      & WithoutServices<R>,
    options?: ServeOptions<Payload["Type"], Error["Type"]>
  ) => Effect.Effect<Fiber.Fiber<never>, never, OrchestrationContext>
  /** @internal */
  readonly codecs: {
    readonly payload: Codec<Payload["Type"]>
    readonly success: Codec<Success["Type"]>
    readonly error: Codec<Error["Type"]>
  }
}

/**
 * A question that a program has taken, and has to answer or refuse. A second answer is a defect, and so is one of more
 * than 65,536 bytes.
 *
 * @category models
 * @since 0.3.0
 */
export interface Question<out Payload, in Success, in Error> {
  /** Chosen by the caller, or a random UUID. */
  readonly requestId: string
  readonly payload: Payload
  readonly answer: (...value: PayloadArgument<Success>) => Effect.Effect<void, never, OrchestrationContext>
  readonly refuse: (error: Error) => Effect.Effect<void, never, OrchestrationContext>
}

/**
 * How questions are answered.
 *
 * @category models
 * @since 0.3.0
 */
export interface ServeOptions<in Payload, out Error> {
  /**
   * Refuses questions before the handler sees them. It must have no effects. If it throws, the caller gets
   * `RequestFailed`. A replay does not call it again for questions that were decided, so it may change while instances
   * run. Defaults to accepting all.
   */
  readonly validate?: ((payload: Payload) => Result.Result<unknown, Error>) | undefined
  /** How many handlers run at once. Defaults to 1: questions are answered one after another, in order of arrival. */
  readonly concurrency?: number | "unbounded" | undefined
}

/**
 * Defines a request that every instance can serve. `payload` and `success` default to `Schema.Void`, `error` to
 * `Schema.Never`; each takes a Schema, or the fields of a `Schema.Struct`. Throws a `RangeError` if the name is empty,
 * is too long or cannot be stored.
 *
 * **Details**
 *
 * An answer or a refusal has at most 65,536 bytes of JSON text. An instance keeps its newest 100 answers, and those of
 * the last minute, 1,000 at most; they are values of the instance, stored under keys that begin with
 * `duroxide-prisma/answer/`. A repeated question whose answer is kept is not taken again.
 *
 * **Example** (Approving an order, by a client that waits for the answer)
 *
 * ```ts
 * const Approve = Request.make("Approve", {
 *   payload: { by: Schema.String },
 *   success: Schema.Struct({ approvals: Schema.Number }),
 *   error: Schema.Literal("closed")
 * })
 *
 * // In the program
 * yield* Approve.serve(({ by }) => Record.execute(by))
 *
 * // In a client
 * const { approvals } = yield* client.request(Approve, "order-17", { by: "Ada" }, { timeout: "10 seconds" })
 * ```
 *
 * @category constructors
 * @since 0.3.0
 */
export const make = <
  Payload extends PayloadInput = Schema.Void,
  Success extends PayloadInput = Schema.Void,
  Error extends PayloadInput = Schema.Never
>(name: string, options?: {
  readonly payload?: Payload
  readonly success?: Success
  readonly error?: Error
}): Request<SchemaOf<Payload>, SchemaOf<Success>, SchemaOf<Error>> => {
  checkNameUnsafe("request", requestSignal.nameOf(name))
  if (name === "") throw new RangeError("name of request \"\" is refused: it is empty")
  return withSchemas(
    name,
    payloads.schemaOf(options?.payload),
    payloads.schemaOf(options?.success),
    payloads.schemaOf(options?.error, Schema.Never)
  )
}

// internal

const withSchemas = <Payload extends PayloadSchema, Success extends PayloadSchema, Error extends PayloadSchema>(
  name: string,
  payload: Payload,
  success: Success,
  error: Error
): Request<Payload, Success, Error> => {
  type Taken = Question<Payload["Type"], Success["Type"], Error["Type"]>
  const codecs = {
    payload: payloads.make(`payload of request "${name}"`, payload),
    success: payloads.make(`answer to request "${name}"`, success),
    error: payloads.make(`error of request "${name}"`, error)
  }
  const take = Effect.fnUntraced(function*(
    validate: ServeOptions<Payload["Type"], Error["Type"]>["validate"]
  ): Effect.fn.Return<Taken, never, OrchestrationContext> {
    const { keyValues, perform, verdict } = yield* engine
    while (true) {
      const event = yield* perform({ _tag: "DequeueEvent", name: requestSignal.nameOf(name) })
      // It waits for a process that has the key.
      if (sealed.isSealed(event.data)) yield* decoded(codecs.payload.decode(event.data))
      const question = requestSignal.decode(event.data)
      if (question === undefined || (yield* keyValues).has(requestSignal.answerKey(question.id))) continue
      const { id } = question
      const decision = yield* verdict(id)
      if (decision._tag === "Rejected") {
        yield* store(id, decision.answer)
        continue
      }
      const isNew = decision._tag === "New"
      const read = codecs.payload.decode(question.payload)
      if (Exit.isFailure(read) && isNew) {
        const problem = `its payload cannot be read: ${Cause.pretty(read.cause).split("\n")[0]}`
        yield* store(id, requestSignal.encodeAnswer({ _tag: "Failed", problem, isRejected: true }))
        continue
      }
      const value = yield* decoded(read)
      if (isNew && validate !== undefined) {
        const refused = yield* Effect.exit(refusal(validate, value))
        if (Exit.isFailure(refused)) {
          yield* store(id, yield* failed(refused.cause, "its validate died", true))
          continue
        }
        if (refused.value !== undefined) {
          yield* store(id, refused.value)
          continue
        }
      }
      return {
        requestId: id,
        payload: value,
        answer: Effect.fnUntraced(function*(...[value]: PayloadArgument<Success["Type"]>) {
          yield* store(id, yield* checkedAnswer("Success", yield* Effect.orDie(codecs.success.encode(value))))
        }),
        refuse: (error) => Effect.flatMap(refusedWith(error, false), (text) => store(id, text))
      }
    }
  })
  /** The answer to a question that is refused before it is accepted. */
  const refusal = Effect.fnUntraced(function*(
    validate: NonNullable<ServeOptions<Payload["Type"], Error["Type"]>["validate"]>,
    value: Payload["Type"]
  ) {
    const checked = validate(value)
    return Result.isFailure(checked) ? yield* refusedWith(checked.failure, true) : undefined
  })
  const refusedWith = (failure: Error["Type"], isRejected: boolean) =>
    Effect.flatMap(
      Effect.orDie(payloads.encodeError(codecs.error, failure)),
      (text) => checkedAnswer("Refused", text, isRejected)
    )
  /** The answer to a question whose handler or check died. */
  const failed = (cause: Cause.Cause<unknown>, what: string, isRejected: boolean) =>
    logDeath("Request: handler died", Cause.squash(cause)).pipe(
      Effect.annotateLogs({ request: name }),
      Effect.as(requestSignal.encodeAnswer({ _tag: "Failed", problem: diedOf(cause, what), isRejected }))
    )
  const checkedAnswer = (tag: "Success" | "Refused", text: string, isRejected = false) => {
    const encoded = requestSignal.encodeAnswer(
      tag === "Success" ? { _tag: tag, value: text } : { _tag: tag, error: text, isRejected }
    )
    const bytes = valueBytes(encoded)
    return bytes > maxValueBytes
      ? Effect.die(new Error(`answer to request "${name}" has ${bytes} bytes, the limit is ${maxValueBytes}`))
      : Effect.succeed(encoded)
  }
  return {
    name,
    payload,
    success,
    error,
    codecs,
    take: take(undefined),
    serve: (handler, { concurrency = 1, validate } = {}) => {
      const answered = Effect.fnUntraced(function*({ answer, payload, refuse, requestId }: Taken) {
        const ended = yield* Effect.exit(
          Effect.matchEffect(
            (handler as (payload: Payload["Type"]) => Effect.Effect<Success["Type"], Error["Type"], never>)(payload),
            {
              onFailure: refuse,
              onSuccess: (value) => answer(...[value] as PayloadArgument<Success["Type"]>)
            }
          )
        )
        if (Exit.isSuccess(ended)) return
        yield* store(requestId, yield* failed(ended.cause, "its handler died", false))
      })
      if (concurrency === 1) return Effect.forkChild(Effect.forever(Effect.flatMap(take(validate), answered)))
      if (concurrency === "unbounded") {
        return Effect.forkChild(
          Effect.forever(Effect.flatMap(take(validate), (question) => Effect.forkChild(answered(question))))
        )
      }
      if (!Number.isSafeInteger(concurrency) || concurrency < 1) {
        return Effect.die(new RangeError(`concurrency of request "${name}" is ${concurrency}; it must be at least 1`))
      }
      return Effect.flatMap(Semaphore.make(concurrency), (slots) =>
        Effect.forkChild(Effect.forever(
          slots.take(1).pipe(
            Effect.andThen(take(validate)),
            Effect.flatMap((question) => Effect.forkChild(Effect.ensuring(answered(question), slots.release(1))))
          )
        )))
    }
  }
}

/** Records the answer, and removes those that are not kept. */
const store = Effect.fnUntraced(function*(id: string, text: string) {
  const { keyValues, keyValueTimes, request } = yield* engine
  const key = requestSignal.answerKey(id)
  if ((yield* keyValues).has(key)) return yield* Effect.die(new Error(`request ${id} is answered already`))
  yield* request({ _tag: "SetKeyValue", key, value: text })
  const nowMs = yield* Clock.currentTimeMillis
  for (const key of requestSignal.outdated(yield* keyValueTimes, nowMs)) yield* request({ _tag: "ClearKeyValue", key })
})

const diedOf = (cause: Cause.Cause<unknown>, what: string): string => {
  const death = cause.reasons.find((reason) => reason._tag === "Die")
  if (death === undefined) return "its handler was interrupted"
  const message = death.defect instanceof Error ? death.defect.message : String(death.defect)
  return `${what}: ${message.slice(0, 1_000)}`
}
