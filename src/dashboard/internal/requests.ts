/**
 * Requests: what an instance was asked, and asking it.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as SchemaTransformation from "effect/SchemaTransformation"
import { randomUUID } from "node:crypto"
import * as Client from "../../Client.ts"
import type { InstanceDetail } from "../../operating/instanceDetail.ts"
import { questionsOf } from "../../operating/questions.ts"
import { findRunning } from "../../operating/running.ts"
import * as Request from "../../Request.ts"
import { Refused } from "../Api.ts"
import type * as Api from "../Api.ts"

type Shown = typeof Api.Question.Type
type Asked = typeof Api.Asked.Type

export const shown = (
  { answers, history }: Pick<InstanceDetail, "answers" | "history">,
  seesPayloads: boolean
): ReadonlyArray<Shown> =>
  questionsOf(history, answers).slice(0, mostShown).map(({ answer, asked, isTaken, requestId }): Shown => ({
    requestId,
    name: asked?.name ?? null,
    state: answer === undefined
      ? isTaken ? "Taken" : "Waiting"
      : answer._tag === "Success"
      ? "Answered"
      : answer._tag,
    sinceMs: asked?.sinceMs ?? null,
    eventId: asked?.eventId ?? null,
    payload: seesPayloads ? asked?.payload ?? null : null,
    answer: !seesPayloads || answer === undefined || answer._tag === "Failed"
      ? null
      : answer._tag === "Success"
      ? answer.value
      : answer.error,
    problem: answer?._tag === "Failed" ? answer.problem : null
  }))

/** Asks, and waits for the answer. Only a failure of the store is one. */
export const ask = Effect.fnUntraced(function*(
  { instanceId, name, payload, timeoutMs = defaultTimeoutMs }: {
    readonly instanceId: string
    readonly name: string
    readonly payload: Schema.Json
    readonly timeoutMs?: number | undefined
  },
  seesPayloads: boolean
) {
  const request = yield* Effect.try({
    try: () => Request.make(name, { payload: Schema.Unknown, success: Schema.Unknown, error: Refusal }),
    catch: (thrown) => new Refused({ code: "InvalidInput", message: (thrown as Error).message })
  })
  yield* findRunning(instanceId)
  const requestId = randomUUID()
  const said = (outcome: Asked["outcome"], message: string, answer?: unknown): Asked => ({
    outcome,
    requestId,
    answer: answer === undefined || !seesPayloads ? null : JSON.stringify(answer),
    message
  })
  return yield* (yield* Client.Client).request(request, instanceId, payload, { requestId, timeout: timeoutMs }).pipe(
    Effect.map((answer) => said("Answered", `${instanceId} answered ${name}`, answer ?? null)),
    Effect.catchTags({
      Refusal: ({ error }) => Effect.succeed(said("Refused", `${instanceId} refused ${name}`, error ?? null)),
      RequestFailed: ({ message }) => Effect.succeed(said("Failed", message)),
      WaitTimeout: ({ message }) => Effect.succeed(said("TimedOut", message)),
      InstanceEnded: ({ message }) => Effect.fail(new Refused({ code: "InstanceEnded", message }))
    })
  )
})

// internal

/** The newest ones. */
const mostShown = 200

const defaultTimeoutMs = 20_000

/** Whatever the program refuses with, apart from every other failure. */
const Refusal = Schema.Unknown.pipe(
  Schema.decodeTo(
    Schema.TaggedStruct("Refusal", { error: Schema.Unknown }),
    SchemaTransformation.transform({
      decode: (error: unknown) => ({ _tag: "Refusal" as const, error }),
      encode: ({ error }) => error
    })
  )
)
