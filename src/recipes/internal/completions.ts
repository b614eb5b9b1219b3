/**
 * Completes calls by their tokens: looks how the call stands, sends the signal, and looks whether it was taken.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as calls from "../../model/shared/completion.ts"
import { maxPayloadBytes, PayloadMismatch, PayloadTooLarge } from "../../model/shared/payload.ts"
import type { Payload } from "../../model/shared/payload.ts"
import { Rest } from "../../model/shared/rest.ts"
import * as tracing from "../../model/shared/tracing.ts"
import type * as WorkItem from "../../model/WorkItem.ts"
import type { Provider } from "../../provider/Provider.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { AlreadyCompleted, CompletionExpired, NotAwaited, TokenInvalid } from "./completionErrors.ts"
import * as tokens from "./completionToken.ts"

/** An activity that is completed from outside. */
export interface Definition {
  readonly name: string
  readonly codecs: { readonly success: Codec; readonly error: Codec }
}

/** A `Payload` of any type. */
interface Codec extends Pick<Payload<never>, "encode"> {
  readonly decode: (text: string) => Exit.Exit<unknown, PayloadMismatch>
}

export interface Status {
  readonly activityName: string
  readonly instanceId: string
  readonly state: "open" | "completed" | "failed"
  /** When it expires, milliseconds since the Unix epoch; of a call that has ended, what its token says. */
  readonly expiresAtMs: number
  readonly heartbeat: calls.Heartbeat | null
}

export interface Completed {
  readonly state: "taken" | "stored"
}

export type TokenRefused = TokenInvalid

export type Refusal = TokenInvalid | AlreadyCompleted | CompletionExpired | NotAwaited

export const make = ({ activities, keys, provider, waitMs }: {
  readonly provider: Pick<Provider["Service"], "enqueueForOrchestrator" | "readWithExecution">
  readonly keys: tokens.Keys
  readonly activities: ReadonlyArray<Definition> | undefined
  readonly waitMs: number
}) => {
  const byName = activities && new Map(activities.map((one) => [one.name, one]))

  const verified = (token: string) =>
    Effect.suspend(() => {
      const named = tokens.verify(keys, token)
      return named === undefined || byName?.has(named.activityName) === false
        ? Effect.fail(new TokenInvalid())
        : Effect.succeed(named)
    })

  const look = (named: tokens.Named): Effect.Effect<calls.State, ProviderError> =>
    Effect.map(provider.readWithExecution(named.instanceId, named.executionId), (events) =>
      // An instance of this id that was started later is another one.
      events[0]?.timestampMs === named.startedAtMs
        ? calls.stateOf(events, named)
        : { _tag: "Unknown" })

  /** Fails unless the call may still end. */
  const open = Effect.fnUntraced(function*(named: tokens.Named, state: calls.State) {
    const { activityName } = named
    if (state._tag === "Done") return yield* new AlreadyCompleted({ activityName })
    if (state._tag === "Expired") return yield* new CompletionExpired({ activityName, expiresAtMs: state.expiresAtMs })
    if (state._tag !== "Open") return yield* new NotAwaited({ activityName })
    const expiresAtMs = state.expiresAtMs ?? named.expiresAtMs
    if ((yield* Clock.currentTimeMillis) > expiresAtMs) {
      return yield* new CompletionExpired({ activityName, expiresAtMs })
    }
    return { ...state, expiresAtMs }
  })

  const send = (named: tokens.Named, data: string) =>
    Effect.flatMap(
      tracing.withTraceparent<WorkItem.Of<"QueueMessage">>({
        _tag: "QueueMessage",
        instance: named.instanceId,
        name: calls.nameOf(named),
        data
      }),
      (message) => provider.enqueueForOrchestrator({ message, delay: Option.none() })
    )

  /** Looks until the call has ended, for a while. */
  const taken = Effect.fnUntraced(function*(named: tokens.Named, data: string) {
    const rest = yield* Rest
    if (rest !== undefined) yield* rest
    const untilMs = (yield* Clock.currentTimeMillis) + (rest === undefined ? waitMs : 0)
    for (let pauseMs = 10;; pauseMs = Math.min(2 * pauseMs, 500)) {
      const state = yield* look(named)
      if (state._tag === "Done" && state.message === data) return { state: "taken" } as const
      if (state._tag !== "Open") yield* open(named, state)
      const leftMs = untilMs - (yield* Clock.currentTimeMillis)
      if (leftMs <= 0) return { state: "stored" } as const
      yield* Effect.sleep(Math.min(pauseMs, leftMs))
    }
  })

  const end = (
    operation: string,
    token: string,
    encoded: (named: tokens.Named) => Effect.Effect<
      string,
      PayloadMismatch | PayloadTooLarge
    >
  ) =>
    Effect.gen(function*() {
      const named = yield* verified(token)
      const data = yield* encoded(named)
      const state = yield* look(named)
      if (state._tag === "Done" && state.message === data) return { state: "taken" } as const
      yield* open(named, state)
      yield* send(named, data)
      return yield* taken(named, data)
    }).pipe(Effect.withSpan(operation, client))

  const checked = (
    codec: Codec | undefined,
    of: string,
    json: unknown
  ): Effect.Effect<string, PayloadMismatch | PayloadTooLarge> => {
    const text = JSON.stringify(json) ?? "null"
    return codec === undefined
      ? small(of, text)
      : Effect.flatMap(codec.decode(text), (value) => codec.encode(value as never))
  }

  return {
    named: verified,

    complete: (token: string, result: unknown) =>
      end("Completion.complete", token, ({ activityName }) =>
        Effect.map(
          checked(byName?.get(activityName)?.codecs.success, `result of activity "${activityName}"`, result),
          (result) => encode({ _tag: "Completed", result })
        )),

    fail: (token: string, error: unknown) =>
      end("Completion.fail", token, ({ activityName }) =>
        Effect.map(
          checked(byName?.get(activityName)?.codecs.error, `error of activity "${activityName}"`, error),
          (error) => encode({ _tag: "Failed", error })
        )),

    heartbeat: (token: string, details: unknown = null) =>
      Effect.gen(function*() {
        const named = yield* verified(token)
        const { activityName } = named
        const data = encode({ _tag: "Heartbeat", details })
        if (data.length > maxDetailsLength) {
          const problem = `it has ${data.length} characters of JSON, the limit is ${maxDetailsLength}`
          return yield* new PayloadMismatch({ of: `details of a heartbeat of activity "${activityName}"`, problem })
        }
        const { expiresAtMs } = yield* Effect.flatMap(look(named), (state) => open(named, state))
        yield* send(named, data)
        return { expiresAtMs: Math.max(expiresAtMs, (yield* Clock.currentTimeMillis) + named.expiryMs) }
      }).pipe(Effect.withSpan("Completion.heartbeat", client)),

    status: (token: string) =>
      Effect.gen(function*() {
        const named = yield* verified(token)
        const { activityName, expiresAtMs, instanceId } = named
        const state = yield* look(named)
        if (state._tag === "Done") {
          const isFailure = state.message.startsWith("{\"_tag\":\"Failed\"")
          return { activityName, instanceId, expiresAtMs, state: isFailure ? "failed" : "completed", heartbeat: null }
        }
        const { expiresAtMs: untilMs, heartbeat } = yield* open(named, state)
        return { activityName, instanceId, expiresAtMs: untilMs, state: "open", heartbeat: heartbeat ?? null }
      }) as Effect.Effect<Status, Refusal | ProviderError>
  }
}

// internal

// Without the stack of a span: it would show lines of this file.
const client = { kind: "client", captureStackTrace: false } as const

const encode = (message: calls.Message): string => JSON.stringify(message)

const maxDetailsLength = 1_100

/** Without a Schema, only the size is checked. */
const small = (of: string, text: string): Effect.Effect<string, PayloadTooLarge> =>
  Effect.suspend(() => {
    const bytes = Buffer.byteLength(text)
    return bytes > maxPayloadBytes ? Effect.fail(new PayloadTooLarge({ of, bytes })) : Effect.succeed(text)
  })
