/**
 * Starts of a client: one, many, or one together with a signal.
 */
import * as DateTime from "effect/DateTime"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Attributes } from "../model/Attribute.ts"
import * as attributes from "../model/shared/attributes.ts"
import { anyRust, current } from "../model/shared/coreVersion.ts"
import { idOf, limitKeyOf } from "../model/shared/definitions.ts"
import type { Ids, LimitKey, ServedBy } from "../model/shared/definitions.ts"
import { checkRootId } from "../model/shared/identifiers.ts"
import type { Payload as Codec } from "../model/shared/payload.ts"
import * as tracing from "../model/shared/tracing.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { Provider, Start } from "../provider/Provider.ts"
import { InvalidInput, ProviderError } from "../provider/ProviderError.ts"
import { describeSend, durationIn, refused } from "./calls.ts"
import { InstanceAlreadyExists } from "./errors.ts"

/**
 * When an instance begins; at once if neither is given. The start is stored at once in any case, so the id is taken,
 * and the instance keeps messages. Until it begins, its status has `startsAtMs`, and `interrupt` or `terminate` ends
 * it at once.
 *
 * @category models
 * @since 0.3.0
 */
export interface StartTime {
  /** A time of the store's clock; not together with `delay`. With a time in the past, the instance begins at once. */
  readonly startAt?: DateTime.DateTime.Input | undefined
  /** Counted from the moment at which the start is stored; not together with `startAt`. */
  readonly delay?: Duration.Input | undefined
}

/**
 * What happens to an ended instance of the id of a start: `replaceEnded` deletes it with its descendants, and starts
 * anew, in one transaction; `replaceFailed` does so if it has failed or was cancelled.
 *
 * @category models
 * @since 0.3.0
 */
export type Replaces = "replaceEnded" | "replaceFailed"

/**
 * The outcome of one of many starts. `AlreadyExists`: the id is taken, and nothing was written for it.
 *
 * @category models
 * @since 0.3.0
 */
export interface StartOutcome {
  readonly instanceId: string
  readonly outcome: "Started" | "AlreadyExists"
}

/** What a client needs of an orchestration. */
interface Definition {
  readonly name: string
  readonly version: string
  readonly servedBy: ServedBy
  readonly instanceId: Ids
  readonly limitKey: LimitKey
  readonly codecs: { readonly payload: Pick<Codec<any>, "encode"> }
}

interface Given extends StartTime {
  readonly instanceId?: string | undefined
  readonly payload?: unknown
  readonly attributes?: Attributes | undefined
  readonly ifExists?: "refuse" | "ignore" | Replaces | undefined
  readonly version?: "own" | "newest" | undefined
}

/** The start of an instance, with its payload encoded and its input checked. */
export const checkedStart = Effect.fnUntraced(
  function*(orchestration: Definition, options: Given, operation = "Client.start") {
    const input = yield* orchestration.codecs.payload.encode(options.payload)
    const instanceId = idOf(orchestration, options)
    yield* refused(operation)(checkRootId(instanceId))
    const given = options.attributes === undefined
      ? attributes.none
      : yield* refused(operation)(attributes.encode(options.attributes))
    const start: Start = {
      start: {
        _tag: "StartOrchestration",
        instance: instanceId,
        orchestration: orchestration.name,
        input,
        version: options.version === "newest" ? null : orchestration.version,
        parentInstance: null,
        parentId: null,
        executionId: 1,
        ...(attributes.hasAny(given) && { attributes: given }),
        ...limitKeyOf(orchestration, options.payload)
      },
      pinnedVersion: orchestration.servedBy === "rust" ? anyRust : current,
      ...(yield* timeOf(operation, options)),
      replaces: replaces(options.ifExists)
    }
    return start
  }
)

export const send = Effect.fnUntraced(
  function*(queues: Pick<Provider["Service"], "startOrchestration">, start: Start, ifExists: Given["ifExists"]) {
    yield* describeSend("start", start.start.orchestration, start.start.instance)
    const answer = yield* queues.startOrchestration({ ...start, start: yield* tracing.withTraceparent(start.start) })
    if (answer !== "Started" && ifExists !== "ignore") {
      return yield* new InstanceAlreadyExists({ instanceId: start.start.instance })
    }
  }
)

/** Sends a signal together with the start of its instance, if the instance does not exist. */
export const sendWithSignal = Effect.fnUntraced(
  function*(
    queues: Pick<Provider["Service"], "startOrchestration">,
    signal: WorkItem.Of<"ExternalRaised" | "QueueMessage">,
    { orchestration, ...options }: Given & { readonly orchestration: Definition }
  ) {
    const start = yield* checkedStart(orchestration, { ...options, instanceId: signal.instance }, "Client.send")
    yield* describeSend("send", signal.name, signal.instance)
    const sent = queues.startOrchestration({
      ...start,
      start: yield* tracing.withTraceparent(start.start),
      // It must not come before the first wait of its program.
      message: yield* tracing.withTraceparent(
        signal._tag === "ExternalRaised" ? { ...signal, withStart: true } : signal
      )
    })
    // It may have ended after the store has looked whether to replace it: then it is replaced now.
    const answer = yield* Effect.flatMap(
      sent,
      (answer) => answer === "Ended" && start.replaces !== undefined ? sent : Effect.succeed(answer)
    )
    if (answer === "Ended") return yield* new InstanceAlreadyExists({ instanceId: signal.instance })
  }
)

export const startMany = Effect.fnUntraced(
  function*(
    queues: Pick<Provider["Service"], "startOrchestrations">,
    orchestration: Definition,
    given: ReadonlyArray<Given>,
    options: Omit<Given, "instanceId" | "payload" | "attributes">
  ) {
    const starts = yield* Effect.forEach(
      given,
      (one) => {
        const { delay, startAt } = hasTime(one) ? one : options
        return checkedStart(orchestration, { ...options, ...one, delay, startAt }, operation)
      }
    )
    const traced = yield* Effect.forEach(
      starts,
      (one) => Effect.map(tracing.withTraceparent(one.start), (start) => ({ ...one, start }))
    )
    const outcomes = yield* queues.startOrchestrations(traced)
    return starts.map(({ start }, i): StartOutcome => ({
      instanceId: start.instance,
      outcome: outcomes[i] === "Started" ? "Started" : "AlreadyExists"
    }))
  }
)

// internal

const operation = "Client.startMany"

const hasTime = ({ delay, startAt }: StartTime) => delay !== undefined || startAt !== undefined

const replaces = (ifExists: Given["ifExists"]): Start["replaces"] =>
  ifExists === "replaceEnded" ? "Ended" : ifExists === "replaceFailed" ? "Failed" : undefined

const timeOf = Effect.fnUntraced(function*(operation: string, { delay, startAt }: StartTime) {
  const refuse = (problem: string) =>
    new ProviderError({ operation, reason: new InvalidInput({ field: "startAt", problem }) })
  const duration = yield* durationIn(operation, "delay", delay)
  if (startAt === undefined) return { delay: Option.fromUndefinedOr(duration) }
  if (duration !== undefined) return yield* refuse("it comes with a delay: give one of them")
  const at = Option.getOrUndefined(DateTime.make(startAt))
  if (at === undefined) return yield* refuse("it is not a time")
  return { delay: Option.none<Duration.Duration>(), startAtMs: Math.max(0, DateTime.toEpochMillis(at)) }
})
