/**
 * Orchestrations: ordinary Effect programs that survive crashes, deploys and months of waiting.
 *
 * Inside an orchestration `Effect.sleep`, `all`, `race`, `timeout`, `retry`, `forkChild`, `Clock`, `DateTime.now` and
 * `Random` are durable: they are recorded, and replayed when the program continues in another process. Everything that
 * touches the world belongs in an activity; the only service of the program itself is `Orchestration.Instance`.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import type * as Attribute from "./model/Attribute.ts"
import * as ErrorDetails from "./model/ErrorDetails.ts"
import { limitKeyUnsafe } from "./model/shared/activityOptions.ts"
import * as attributes from "./model/shared/attributes.ts"
import { checkNameUnsafe, checkVersionUnsafe, idOf } from "./model/shared/definitions.ts"
import type { Ids, LimitKey, OnInterrupt, ServedBy } from "./model/shared/definitions.ts"
import { checkChildId, checkRootId, checkText } from "./model/shared/identifiers.ts"
import * as payloads from "./model/shared/payload.ts"
import type { Payload as Codec, PayloadInput, PayloadSchema, SchemaOf } from "./model/shared/payload.ts"
import { decoded, engine, OrchestrationContext } from "./replay/context.ts"
import type { WithoutServices } from "./replay/context.ts"
import * as fit from "./replay/fit.ts"
import * as programs from "./replay/programs.ts"
import { orchestrationKey } from "./runtime/handlers.ts"
import type { OrchestrationHandler } from "./runtime/handlers.ts"

export type { OrchestrationHandler as Handler } from "./runtime/handlers.ts"

/**
 * Describes the instance a program runs for: `instanceId`, `executionId`, `orchestrationName`, `orchestrationVersion`,
 * `isReplaying`. Every durable operation requires it.
 *
 * @category context
 * @since 0.1.0
 */
export const Instance: typeof OrchestrationContext = OrchestrationContext

/**
 * The type of the service `Instance`.
 *
 * @category context
 * @since 0.1.0
 */
export type Instance = OrchestrationContext

/**
 * A definition that can be started: a name and a version, with the Schemas of payload, result and error. Its program
 * runs in processes of this package, or of Duroxide in Rust.
 *
 * @category models
 * @since 0.2.0
 */
export interface Startable<
  in out Name extends string,
  in out Payload extends PayloadSchema,
  in out Success extends PayloadSchema,
  in out Error extends PayloadSchema,
  in out Version extends string = any,
  out Id extends Ids = any
> {
  readonly name: Name
  /** A semantic version. A running execution keeps the one it began with. */
  readonly version: Version
  /** Which processes run the program: those of this package, or those of Duroxide in Rust. */
  readonly servedBy: ServedBy
  readonly payload: Payload
  readonly success: Success
  readonly error: Error
  /** Derives the id of an instance from its payload; undefined if every start must give an id. */
  readonly instanceId: Id
  /** Derives the key of an instance for limits from its payload; undefined without one. */
  readonly limitKey: LimitKey
  /**
   * Runs an instance of this orchestration as a child of the calling one, and waits for its outcome.
   *
   * **Details**
   *
   * The id of the child is derived from that of its parent, and it runs the version of this definition. Its typed
   * failure stays a typed failure. A child that someone else has interrupted or terminated becomes the defect
   * `ChildCancelled`; one that died or could not be started, `ChildFailed`.
   *
   * Interruption of the call interrupts the child, and waits until its finalizers have run, as it waits for those of
   * any fiber. `with` has other ways.
   */
  readonly execute: (payload: Payload["Type"]) => Effect.Effect<Success["Type"], Error["Type"], OrchestrationContext>
  /**
   * Like `execute`, with the given id, or the one this definition derives. Dies with `ChildFailed` if the id is taken.
   */
  readonly executeWithId: (
    options: Start<Payload["Type"], Id>
  ) => Effect.Effect<Success["Type"], Error["Type"], OrchestrationContext>
  /**
   * Returns the calls of a child with these options.
   *
   * **Example** (Undoing what a child has completed although its call was interrupted)
   *
   * ```ts
   * yield* BookHotel.with({ onLateSuccess: (hotel) => Release.execute(hotel) }).execute(trip).pipe(
   *   Effect.timeout("1 hour")
   * )
   * ```
   */
  readonly with: (
    options: ChildOptions<Success["Type"]>
  ) => Pick<Startable<Name, Payload, Success, Error, Version, Id>, "execute" | "executeWithId">
  /**
   * Starts an independent instance, in the version of this definition. The caller receives no result, and its
   * cancellation does not reach the instance. Does nothing if the id is taken.
   */
  readonly startDetached: (options: Start<Payload["Type"], Id>) => Effect.Effect<void, never, OrchestrationContext>
  /** @internal */
  readonly codecs: {
    readonly payload: Codec<Payload["Type"]>
    readonly success: Codec<Success["Type"]>
    readonly error: Codec<Error["Type"]>
  }
}

/**
 * How a child is called.
 *
 * @category models
 * @since 0.2.0
 */
export interface ChildOptions<in Success> {
  /**
   * What happens to the child when its call is interrupted: `interrupt` runs its finalizers, and the call ends with the
   * child; `interruptAndContinue` runs them as well, and the call ends at once; `terminate` ends the child at its next
   * turn without finalizers, and the call at once. A child in Rust is terminated in each case. Defaults to `interrupt`.
   */
  readonly onInterrupt?: OnInterrupt | undefined
  /**
   * Gets the result of a child that completed before the interruption of its call reached it. The call stays
   * interrupted, so this is the place to undo what the child has done. Only with `interrupt`, which waits for the end.
   */
  readonly onLateSuccess?: ((value: Success) => Effect.Effect<void, never, OrchestrationContext>) | undefined
}

/**
 * Names the instance to start, and its payload.
 *
 * **Details**
 *
 * `instanceId` may be left out if the definition derives it from the payload, and `payload` if it is void. An id has at
 * most 1,024 bytes of UTF-8 and holds neither NUL nor `::sub::`.
 *
 * @category models
 * @since 0.2.0
 */
export type Start<Payload, Id extends Ids = undefined> =
  & {
    /**
     * Attributes that the instance begins with, by which `Admin.list` finds it: at most 20, with names of letters,
     * digits, `_`, `.` and `-`, and with texts of at most 256 characters, finite numbers, or times. Defaults to none.
     */
    readonly attributes?: Attribute.Attributes | undefined
  }
  & ([Id] extends [undefined] ? { readonly instanceId: string } : { readonly instanceId?: string | undefined })
  & ([Payload] extends [void] ? { readonly payload?: Payload } : { readonly payload: Payload })

/**
 * A named, versioned program with the Schemas of payload, result and error.
 *
 * @category models
 * @since 0.1.0
 */
export interface Orchestration<
  in out Name extends string,
  in out Payload extends PayloadSchema,
  in out Success extends PayloadSchema,
  in out Error extends PayloadSchema,
  in out Version extends string = any,
  out Id extends Ids = any
> extends Startable<Name, Payload, Success, Error, Version, Id> {
  readonly servedBy: "typescript"
  /**
   * Provides the program to `Runtime.layer`. It cannot use services of the application: those belong in activities.
   */
  readonly toLayer: <R = never>(
    program: ((payload: Payload["Type"]) => Effect.Effect<Success["Type"], Error["Type"], R>) & WithoutServices<R>
  ) => Layer.Layer<OrchestrationHandler<Name, Version>>
  /**
   * Ends this execution and begins the next one of the same instance with `payload`. This keeps the history of an
   * endless orchestration short. No code after it runs.
   *
   * **Details**
   *
   * The next execution inherits all signals that were not taken, the values, the custom status and the link to a
   * parent; activities, timers and waits end here. Each inherited message is an event of the new history, so read
   * messages before they pile up.
   *
   * The next execution runs the newest version served by the process that claims it, never an older one than this
   * execution's; a process without such a version does not claim it. With `version: "own"` it runs the version of this
   * definition.
   *
   * **Gotchas**
   *
   * The newest version decodes `payload` by its own Schema, and the instance is blocked if the Schema refuses it.
   * Give new fields a default, or continue with `version: "own"`.
   */
  readonly continueAsNew: (
    payload: Payload["Type"],
    options?: ContinueOptions
  ) => Effect.Effect<never, never, OrchestrationContext>
}

/**
 * Any orchestration whose program runs in processes of this package: what `Runtime.layer` accepts.
 *
 * @category models
 * @since 0.1.0
 */
export interface Any {
  readonly name: string
  readonly version: string
  readonly servedBy: "typescript"
  readonly payload: PayloadSchema
  readonly success: PayloadSchema
  readonly error: PayloadSchema
}

/**
 * A child orchestration was interrupted or terminated, and not because its call was. `reason` is the one given for it.
 *
 * @category errors
 * @since 0.2.0
 */
export class ChildCancelled
  extends Schema.TaggedError<ChildCancelled>("duroxide-prisma/ChildCancelled")("ChildCancelled", {
    orchestration: Schema.String,
    reason: Schema.String
  })
{
  override get message() {
    return `child orchestration "${this.orchestration}" was cancelled: ${this.reason}`
  }
}

/**
 * A child orchestration ended without a typed outcome: it died, or could not be started. `problem` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class ChildFailed extends Schema.TaggedError<ChildFailed>("duroxide-prisma/ChildFailed")("ChildFailed", {
  orchestration: Schema.String,
  problem: Schema.String
}) {
  override get message() {
    return `child orchestration "${this.orchestration}" failed: ${this.problem}`
  }
}

/**
 * Sets the custom status of the instance, for people and dashboards; null removes it. A text of more than 262,144
 * bytes of UTF-8 fails the instance.
 *
 * @category status
 * @since 0.1.0
 */
export const setCustomStatus = (status: string | null): Effect.Effect<void, never, OrchestrationContext> =>
  Effect.flatMap(engine, ({ request }) =>
    Effect.andThen(
      status === null ? Effect.void : fit.orDie(checkText("custom status", status)),
      request({ _tag: "UpdateCustomStatus", status })
    ))

/**
 * Reads the custom status that the program has set last. The next execution inherits it.
 *
 * @category status
 * @since 0.1.0
 */
export const customStatus: Effect.Effect<string | null, never, OrchestrationContext> = Effect.flatMap(
  engine,
  ({ customStatus }) => customStatus
)

/**
 * Sets attributes of the instance, by which `Admin.list` finds it; null removes one. Those that are not named stay. The
 * next execution inherits them.
 *
 * **Details**
 *
 * An instance has at most 20 attributes. A name begins with a letter and has only letters, digits, `_`, `.` and `-`, at
 * most 64 of them. A value is a text of at most 256 characters, a finite number, or a time, which is kept in whole
 * milliseconds. Anything else is a defect. They are stored with the turn.
 *
 * **Example** (Setting the customer and the due time of an order, and removing a coupon)
 *
 * ```ts
 * yield* Orchestration.setAttributes({ customer: order.customer, due: order.due, coupon: null })
 * ```
 *
 * @category attributes
 * @since 0.3.0
 */
export const setAttributes = (
  changes: Attribute.Changes
): Effect.Effect<void, never, OrchestrationContext> =>
  Effect.gen(function*() {
    const { attributes: current, request } = yield* engine
    const encoded = yield* fit.orDie(attributes.encodeChanges(changes))
    if (Object.keys(encoded).length === 0) return
    yield* fit.orDie(attributes.checkCount(attributes.changed(yield* current, encoded)))
    yield* request({ _tag: "SetAttributes", changes: encoded })
  })

/**
 * Says whether a change of the program applies to this execution: true if it reaches this place with the new code,
 * false if it passed this place with the code before.
 *
 * **When to use**
 *
 * Use to change a program under running instances, where a new version would leave them on the old code for too long.
 *
 * **Details**
 *
 * A true answer is recorded, a false one is not. The first answer holds until the execution ends, in every replay and
 * for every call with this id. The next execution, after `continueAsNew`, asks anew: it gets true. Throws a
 * `RangeError` if the id is empty, is too long or cannot be stored.
 *
 * **Gotchas**
 *
 * An instance that waits just before this place has not passed it: it gets true. What took the new branch does not fit
 * the old code: a process that still runs the old code blocks it, until one with the new code claims it.
 *
 * **Example** (A step that only new instances take)
 *
 * ```ts
 * const program = Effect.fn(function*(order: typeof Order.Type) {
 *   if (yield* Orchestration.changed("check-fraud")) yield* CheckFraud.execute(order.id)
 *   return yield* Charge.execute(order)
 * })
 * ```
 *
 * @category versioning
 * @since 0.2.0
 */
export const changed = (id: string): Effect.Effect<boolean, never, OrchestrationContext> => {
  checkNameUnsafe("change", id)
  return Effect.flatMap(engine, ({ changed }) => changed(id))
}

/**
 * Reads how many events the history of this execution has, so that a program can decide when to continue as new.
 *
 * **Details**
 *
 * Counts all events up to the one with which the program continues now, those of its requests and of their answers; a
 * request that it has just made counts from the next wait on. It is the same number on every replay.
 *
 * **Example** (Continuing as new before replays get slow)
 *
 * ```ts
 * while ((yield* Orchestration.historySize) < 2_000) yield* Play.execute(yield* Moves.take)
 * return yield* Game.continueAsNew(state)
 * ```
 *
 * @category context
 * @since 0.2.0
 */
export const historySize: Effect.Effect<number, never, OrchestrationContext> = Effect.flatMap(
  engine,
  ({ historySize }) => historySize
)

/**
 * Creates a random UUID (version 4). Unlike `crypto.randomUUID` it is the same on every replay, because it is drawn
 * from the orchestration's `Random`. Unique per execution; not suitable as a secret.
 *
 * @category random
 * @since 0.1.0
 */
export const uuid: Effect.Effect<string, never, OrchestrationContext> = Effect.flatMap(
  OrchestrationContext,
  () =>
    Effect.map(Effect.service(Random.Random), (random) => uuidOf(() => Math.floor(random.nextDoubleUnsafe() * 2 ** 32)))
)

/**
 * Defines an orchestration. Stored instances refer to it by name and version.
 *
 * **Details**
 *
 * `version` is a semantic version and defaults to `1.0.0`, `payload` and `success` default to `Schema.Void`, `error` to
 * `Schema.Never`; each takes a Schema, or the fields of a `Schema.Struct`. All three are stored as JSON text. A failure
 * of the program becomes the typed failure of `Client.wait`; a defect becomes `InstanceFailed`. Throws a `RangeError`
 * if `version` is not a semantic version, or if the name is empty, is too long or cannot be stored.
 *
 * `instanceId` derives the id of an instance from its payload, so that starts may leave it out. It must depend on the
 * payload alone: a replay calls it again.
 *
 * A program that changes while instances run needs a new version, which is a definition of its own. `Runtime.layer`
 * takes any number of them; each needs its program. A start runs the version of the definition it is given. An
 * execution keeps its version until it ends, in every process; `continueAsNew` continues with the newest.
 *
 * With `servedBy: "rust"` the program belongs to Duroxide in Rust, in a schema that both share: the definition can be
 * started, called and waited for, and has no program here.
 *
 * **Example** (Two versions side by side)
 *
 * ```ts
 * const Fulfil = Orchestration.make("Fulfil", { version: "2.0.0", payload: Order })
 * const Fulfil1 = Orchestration.make("Fulfil", { version: "1.0.0", payload: Order })
 *
 * const RuntimeLive = Runtime.layer({ orchestrations: [Fulfil, Fulfil1] }).pipe(
 *   Layer.provide([FulfilLive, Fulfil1Live])
 * )
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = <
  const Name extends string,
  Payload extends PayloadInput = Schema.Void,
  Success extends PayloadInput = Schema.Void,
  Error extends PayloadInput = Schema.Never,
  const Version extends string = "1.0.0",
  By extends ServedBy = "typescript",
  Id extends string = never
>(name: Name, options?: {
  readonly version?: Version
  readonly payload?: Payload
  readonly success?: Success
  readonly error?: Error
  /** Which processes run it: those of this package, or those of Duroxide in Rust. Defaults to `typescript`. */
  readonly servedBy?: By
  /** Derives the id of an instance from its payload. Defaults to none: every start gives an id. */
  readonly instanceId?: (payload: SchemaOf<Payload>["Type"]) => Id
  /**
   * The key of an instance, by which limits of this orchestration distinguish instances: a tenant, a customer, an API.
   * 1 to 256 bytes. Defaults to no key. `Admin.setLimit` and `Limits.layer` set the limits.
   *
   * **Gotchas**
   *
   * A function of the payload of the start: the instance keeps its key when it continues as new. One that throws is a
   * defect of the caller. A key that is refused fails a start of a client with `InvalidInput`, and is a defect of a
   * program.
   */
  readonly limitKey?: (payload: SchemaOf<Payload>["Type"]) => string
}): Made<By, Name, SchemaOf<Payload>, SchemaOf<Success>, SchemaOf<Error>, Version, IdsOf<SchemaOf<Payload>, Id>> => {
  const version = options?.version ?? "1.0.0" as Version
  checkNameUnsafe("orchestration", name)
  checkVersionUnsafe(name, version)
  const schemas = {
    payload: payloads.schemaOf(options?.payload),
    success: payloads.schemaOf(options?.success),
    error: payloads.schemaOf(options?.error, Schema.Never)
  }
  const startable = startableOf(
    name,
    version,
    options?.servedBy ?? "typescript",
    options?.instanceId,
    options?.limitKey,
    schemas
  )
  return (startable.servedBy === "rust" ? startable : withProgram(startable)) as Made<
    By,
    Name,
    SchemaOf<Payload>,
    SchemaOf<Success>,
    SchemaOf<Error>,
    Version,
    IdsOf<SchemaOf<Payload>, Id>
  >
}

// internal

interface ContinueOptions {
  /**
   * Which version runs next: the newest one, or that of this definition. Defaults to `newest`, so that an endless
   * instance does not keep its first version; a start by a client defaults to `own`.
   */
  readonly version?: "newest" | "own" | undefined
}

/** What `make` returns: a definition that Rust serves has no program here. */
type Made<
  By extends ServedBy,
  Name extends string,
  Payload extends PayloadSchema,
  Success extends PayloadSchema,
  Error extends PayloadSchema,
  Version extends string,
  Id extends Ids
> = By extends "typescript" ? Orchestration<Name, Payload, Success, Error, Version, Id>
  : Startable<Name, Payload, Success, Error, Version, Id>

/** The type of `instanceId`, `Id` being the type of what it returns. */
type IdsOf<Payload extends PayloadSchema, Id extends string> = [Id] extends [never] ? undefined
  : (payload: Payload["Type"]) => string

/** `make`, once the Schemas are known. */
const startableOf = <
  const Name extends string,
  Payload extends PayloadSchema,
  Success extends PayloadSchema,
  Error extends PayloadSchema,
  const Version extends string,
  Id extends Ids
>(
  name: Name,
  version: Version,
  servedBy: ServedBy,
  instanceId: Id,
  limitKey: LimitKey,
  schemas: { readonly payload: Payload; readonly success: Success; readonly error: Error }
): Startable<Name, Payload, Success, Error, Version, Id> => {
  const codecs = {
    payload: payloads.make(`payload of orchestration "${name}"`, schemas.payload),
    success: payloads.make(`result of orchestration "${name}"`, schemas.success),
    error: payloads.make(`error of orchestration "${name}"`, schemas.error)
  }
  const { decode } = codecs.payload
  const keyOf = (value: unknown) =>
    limitKey === undefined
      ? {}
      : { limitKey: limitKeyUnsafe(`orchestration "${name}"`, limitKey(value as never)) }
  const execute = Effect.fnUntraced(function*(
    instance: string | null,
    value: Payload["Type"],
    { onInterrupt = "interrupt", onLateSuccess }: ChildOptions<Success["Type"]>,
    given?: Attribute.Attributes
  ) {
    const { perform } = yield* engine
    if (instance !== null) yield* fit.orDie(checkChildId(instance))
    const input = yield* Effect.orDie(codecs.payload.encode(value))
    const context = yield* OrchestrationContext
    const answer = yield* perform(
      {
        _tag: "StartSubOrchestration",
        name,
        version,
        instance,
        input,
        servedBy,
        decode,
        onInterrupt,
        attributes: yield* attributesOf(given),
        ...keyOf(value)
      },
      (answer) =>
        onLateSuccess === undefined || answer._tag !== "SubOrchestrationCompleted"
          ? Effect.void
          : Effect.provideService(
            Effect.flatMap(decoded(codecs.success.decode(answer.result)), onLateSuccess),
            OrchestrationContext,
            context
          )
    )
    if (answer._tag === "SubOrchestrationCompleted") return yield* decoded(codecs.success.decode(answer.result))
    const { details } = answer
    yield* decoded(codecs.error.checkOpened(details))
    const typed = details._tag === "Application" && details.kind === "OrchestrationFailed"
      ? codecs.error.decodeOption(details.message)
      : Option.none()
    if (Option.isSome(typed)) return yield* Effect.fail(typed.value)
    const reason = ErrorDetails.cancellationOf(details)
    return yield* Effect.die(
      reason === undefined
        ? new ChildFailed({ orchestration: name, problem: ErrorDetails.display(details) })
        : new ChildCancelled({ orchestration: name, reason })
    )
  })
  const calls = (options: ChildOptions<Success["Type"]>) => ({
    execute: (value: Payload["Type"]) => execute(null, value, options),
    executeWithId: (start: Start<Payload["Type"], Id>) =>
      Effect.suspend(() => execute(idOf({ instanceId }, start), start.payload, options, start.attributes))
  })
  return {
    name,
    version,
    servedBy,
    ...schemas,
    codecs,
    instanceId,
    limitKey,
    ...calls({}),
    with: calls,
    startDetached: Effect.fnUntraced(function*(options: Start<Payload["Type"], Id>) {
      const { request } = yield* engine
      const input = yield* Effect.orDie(codecs.payload.encode(options.payload))
      const instance = idOf({ instanceId }, options)
      yield* fit.orDie(checkRootId(instance))
      yield* request({
        _tag: "StartOrchestrationDetached",
        name,
        version,
        instance,
        input,
        servedBy,
        decode,
        attributes: yield* attributesOf(options.attributes),
        ...keyOf(options.payload)
      })
    })
  }
}

/** Undefined without any. */
const attributesOf = (given: Attribute.Attributes | undefined) =>
  given === undefined ? Effect.succeed(undefined) : Effect.map(
    fit.orDie(attributes.encode(given)),
    (encoded) => attributes.hasAny(encoded) ? encoded : undefined
  )

const withProgram = <
  const Name extends string,
  Payload extends PayloadSchema,
  Success extends PayloadSchema,
  Error extends PayloadSchema,
  const Version extends string,
  Id extends Ids
>(
  startable: Startable<Name, Payload, Success, Error, Version, Id>
): Orchestration<Name, Payload, Success, Error, Version, Id> => {
  const { codecs, name, version } = startable
  return {
    ...startable,
    servedBy: "typescript",
    continueAsNew: Effect.fnUntraced(function*(value: Payload["Type"], options?: ContinueOptions) {
      const { continueAsNew } = yield* engine
      const input = yield* Effect.orDie(codecs.payload.encode(value))
      return yield* continueAsNew(input, options?.version === "own" ? version : null)
    }),
    toLayer: (program) => {
      const code = (input: string) =>
        decoded(codecs.payload.decode(input)).pipe(
          // `WithoutServices` refuses every other program.
          Effect.flatMap(
            program as (value: Payload["Type"]) => Effect.Effect<Success["Type"], Error["Type"], OrchestrationContext>
          ),
          // So that the outcome is encoded also when the program is interrupted.
          Effect.interruptible,
          Effect.matchCauseEffect({
            onSuccess: (value) => Effect.orDie(codecs.success.encode(value)),
            onFailure: (cause) => {
              const typed = cause.reasons.find((reason) => reason._tag === "Fail")
              return typed === undefined
                ? Effect.failCause(cause)
                : Effect.flatMap(Effect.orDie(payloads.encodeError(codecs.error, typed.error)), (text) =>
                  Effect.fail(text))
            }
          }),
          Effect.uninterruptible
        )
      const decodes = {
        payload: codecs.payload.decode,
        success: codecs.success.decode,
        error: codecs.error.decode
      }
      const complete = Object.assign(code, { decodes })
      return programs.mark(Layer.succeed(orchestrationKey(name, version), complete), { name, version, code: complete })
    }
  }
}

/** A UUID of four words of 32 bits. */
const uuidOf = (word: () => number): string => {
  const hex = (value: number) => value.toString(16).padStart(8, "0")
  const [a, b, c, d] = [hex(word()), hex(word()), hex(word()), hex(word())] as const
  const variant = (Number.parseInt(c[0]!, 16) & 0x3 | 0x8).toString(16)
  return `${a}-${b.slice(0, 4)}-4${b.slice(5)}-${variant}${c.slice(1, 4)}-${c.slice(4)}${d}`
}
