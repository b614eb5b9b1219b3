/**
 * Spans, and the trace context that links them over processes and months.
 *
 * **When there are spans**
 *
 * Effect always has a tracer. Its native one keeps spans for error messages and exports nothing, so this package makes
 * its own spans only where the application provides another tracer. Elsewhere a traced operation costs one look at the
 * fiber: 0.1 microseconds of processor time, where a span takes 1, and `Effect.withSpan`, which captures a stack, 5.
 *
 * Spans are short: a call of the client, a turn, an attempt at an activity, a statement. None is open while an instance
 * waits, so none is lost with its process.
 *
 * **Where the context is stored**
 *
 * In `traceparent`, a key of the messages and of the first event of an execution, in the form of W3C Trace Context.
 * These records are written and read anyway, so the context costs no statement, no column and no migration, works with
 * every driver, and lives exactly as long as what it describes. Without a tracer the key is absent, so nothing is
 * written. Duroxide in Rust ignores unknown keys at every level. An instance that Rust runs passes no context on: its
 * activities begin traces of their own. A column of `instances` would help there, but every claim would have to read
 * it, and every start to write it.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as LogLevel from "effect/LogLevel"
import * as Option from "effect/Option"
import * as References from "effect/References"
import * as Tracer from "effect/Tracer"
import type { ErrorDetails } from "../ErrorDetails.ts"
import * as dashboardUrl from "./dashboardUrl.ts"
import { errorTypeOf } from "./errorType.ts"

// -- context ---------------------------------------------------------------------------------------

/** The context of a span as it is stored: `00-<trace id>-<span id>-<flags>`. */
export const traceparentOf = ({ sampled, spanId, traceId }: Tracer.AnySpan): string =>
  `00-${traceId.padStart(32, "0")}-${spanId}-${sampled ? "01" : "00"}`

/** The span of another process or time; undefined without a context, and for one that cannot be read. */
export const spanOf = (traceparent: string | undefined): Tracer.ExternalSpan | undefined => {
  if (traceparent === undefined) return undefined
  if (traceparent !== lastRead.traceparent) lastRead = { traceparent, span: read(traceparent) }
  return lastRead.span
}

/** The last one that was read: activities of one turn begin one after another, and continue the same span. */
let lastRead: { readonly traceparent: string; readonly span: Tracer.ExternalSpan | undefined } = {
  traceparent: "",
  span: undefined
}

const read = (traceparent: string): Tracer.ExternalSpan | undefined => {
  if (!form.test(traceparent)) return undefined
  const traceId = traceparent.slice(3, 35)
  const spanId = traceparent.slice(36, 52)
  if (traceparent.startsWith("ff") || traceId === noTraceId || spanId === noSpanId) return undefined
  return Tracer.externalSpan({ traceId, spanId, sampled: (parseInt(traceparent.slice(53, 55), 16) & 1) === 1 })
}

// Later versions may append fields.
const form = /^[\da-f]{2}-[\da-f]{32}-[\da-f]{16}-[\da-f]{2}(?:-|$)/
const noTraceId = "0".repeat(32)
const noSpanId = "0".repeat(16)

/** Whether the spans of a fiber go anywhere. */
export const isOn = ({ cache: { tracer, tracerEnabled } }: Fiber.Fiber<unknown, unknown>): boolean =>
  tracer !== undefined && tracerEnabled && tracer !== Tracer.nativeTracer

const currentSpanOf = (fiber: Fiber.Fiber<unknown, unknown>): Tracer.AnySpan | undefined => {
  const { span } = fiber.cache
  return span === undefined || !isOn(fiber) || Context.get(span.annotations, Tracer.DisablePropagation)
    ? undefined
    : span
}

/** The span that the caller is in; undefined where no spans are made. */
export const currentSpan: Effect.Effect<Tracer.AnySpan | undefined> = Effect.withFiberSucceed(currentSpanOf)

/** The context to store with what the caller sends. */
export const traceparent: Effect.Effect<string | undefined> = Effect.withFiberSucceed((fiber) => {
  const span = currentSpanOf(fiber)
  return span === undefined ? undefined : traceparentOf(span)
})

/** Adds the context of the caller's span to an item, if there is one. */
export const withTraceparent = <Item extends { readonly traceparent?: string }>(item: Item): Effect.Effect<Item> =>
  Effect.map(traceparent, (traceparent) => traceparent === undefined ? item : { ...item, traceparent })

/** Services for fibers that outlive their caller: the span that the caller is in ends before they do. */
export const withoutSpan = <R>(services: Context.Context<R>): Context.Context<R> =>
  Context.omit(Tracer.ParentSpan)(services as Context.Context<R | Tracer.ParentSpan>) as Context.Context<R>

// -- spans -----------------------------------------------------------------------------------------

export interface SpanOptions {
  readonly name: string
  /** The stored context that the span continues. Without one, it begins a trace. */
  readonly traceparent: string | undefined
  readonly kind: Tracer.SpanKind
  /** Sets attributes. Called only if the span is sampled. */
  readonly describe: (span: Tracer.Span, clock: Clock.Clock) => void
  /** What led to it. Not called if the span that it continues is not sampled. */
  readonly links?: () => ReadonlyArray<Tracer.AnySpan>
}

/**
 * Begins a span that its caller ends; undefined where no spans are made. `options` is called only where they are.
 *
 * In a trace that is not sampled the tracer is not asked: the span only hands the trace on, to spans of the
 * application.
 */
export const openUnsafe = (
  context: Context.Context<never>,
  options: () => SpanOptions
): Tracer.Span | undefined => {
  const tracer = Context.get(context, Tracer.Tracer)
  if (tracer === Tracer.nativeTracer || !Context.get(context, References.TracerEnabled)) return undefined
  const { describe, kind, links, name, traceparent } = options()
  const parent = spanOf(traceparent)
  if (parent?.sampled === false) return unsampled(name, kind, parent)
  const span = make(context, tracer, name, kind, parent, links?.() ?? [])
  if (span.sampled) describe(span, Context.get(context, Clock.Clock))
  return span
}

/** Makes a span without a fiber, which would cost an activity a third of its span. */
const make = (
  context: Context.Context<never>,
  tracer: Tracer.Tracer,
  name: string,
  kind: Tracer.SpanKind,
  parent: Tracer.AnySpan | undefined,
  links: ReadonlyArray<Tracer.AnySpan>
): Tracer.Span => {
  const span = tracer.span({
    name,
    kind,
    parent: Option.fromUndefinedOr(parent),
    root: parent === undefined,
    links: [
      ...Context.get(context, References.TracerSpanLinks),
      ...links.map((span) => ({ span, attributes: {} }))
    ],
    annotations: Context.empty(),
    startTime: Context.get(context, Clock.Clock).currentTimeNanosUnsafe(),
    sampled: parent?.sampled !== false && !LogLevel.isGreaterThan(
      Context.get(context, Tracer.MinimumTraceLevel),
      Context.get(context, Tracer.CurrentTraceLevel)
    )
  })
  const annotations = Context.get(context, References.TracerSpanAnnotations)
  for (const key in annotations) span.attribute(key, annotations[key])
  return span
}

export const open = (options: () => SpanOptions): Effect.Effect<Tracer.Span | undefined> =>
  Effect.withFiberSucceed((fiber) => openUnsafe(fiber.context, options))

const unsampled = (name: string, kind: Tracer.SpanKind, parent: Tracer.AnySpan): Tracer.Span =>
  new Tracer.NativeSpan({
    name,
    kind,
    parent: Option.some(parent),
    annotations: Context.empty(),
    links: [],
    startTime: 0n,
    sampled: false
  })

export const within =
  (span: Tracer.AnySpan | undefined) => <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    span === undefined ? self : Effect.updateContext(self, Context.add(Tracer.ParentSpan, span))

/** Puts services within the span, if there is one. */
export const withSpan = <R>(services: Context.Context<R>, span: Tracer.AnySpan | undefined): Context.Context<R> =>
  span === undefined ? services : Context.add(services, Tracer.ParentSpan, span)

/** Ends a span. Ending it again changes nothing. */
export const end = (span: Tracer.Span, exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> =>
  Effect.withFiberSucceed((fiber) => endUnsafe(span, exit, fiber.getRef(Clock.Clock)))

export const endUnsafe = (span: Tracer.Span, exit: Exit.Exit<unknown, unknown>, clock: Clock.Clock): void =>
  span.end(clock.currentTimeNanosUnsafe(), bare(exit))

/** Ends the span that the caller is in together with `self`, and shows of the result only what `bare` leaves. */
export const endingBare = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  endingAs(self, (exit) => exit)

/** Ends the span that the caller is in together with `self`, with the exit that `shown` makes of that of `self`. */
export const endingAs = <A, E, R>(
  self: Effect.Effect<A, E, R>,
  shown: (exit: Exit.Exit<A, E>) => Exit.Exit<unknown, unknown>
): Effect.Effect<A, E, R> =>
  Effect.withFiber((fiber) => {
    const span = currentSpanOf(fiber)
    return span?._tag === "Span" ? Effect.onExit(self, (exit) => end(span, shown(exit))) : self
  })

/**
 * Runs an operation in a span of its own, where spans are made, unless its parent is not sampled. It shows of the
 * result only what `bare` leaves. In place of `Effect.withSpan`, which makes a span for Effect's native tracer as well,
 * and changes the context twice.
 */
export const inSpan = <A, E, R>(
  self: Effect.Effect<A, E, R>,
  name: string,
  kind: Tracer.SpanKind,
  parent: Tracer.AnySpan | undefined
): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    let span: Tracer.Span | undefined
    // Whatever interrupts it, the span ends.
    return Effect.onExit(
      Effect.withFiber<A, E, R>((fiber) => {
        const { tracer } = fiber.cache
        if (tracer === undefined || !isOn(fiber)) return self
        if (parent?.sampled === false) return within(parent)(self)
        span = make(fiber.context, tracer, name, kind, parent, [])
        return within(span)(self)
      }),
      (exit) => span === undefined ? Effect.void : end(span, exit)
    )
  })

/**
 * What a span shows of an exit: that it succeeded, was interrupted or failed, and the type of the failure. Values and
 * messages may be payloads.
 */
const bare = (exit: Exit.Exit<unknown, unknown>): Exit.Exit<void, Error> => {
  if (Exit.isSuccess(exit)) return Exit.void
  const reason = exit.cause.reasons.find(({ _tag }) => _tag !== "Interrupt")
  if (reason === undefined) return Exit.interrupt()
  return failure(reason._tag === "Fail" ? errorTypeOf(reason.error) : "Defect")
}

/** The exit of a span that shows a failure of this type. */
export const failure = (type: string): Exit.Exit<never, Error> => {
  const error = new Error(type)
  error.name = type
  // Exporters send it.
  error.stack = type
  return Exit.fail(error)
}

/** The value of `error.type` for a failed activity or instance. */
export const errorType = (details: ErrorDetails): string =>
  details._tag !== "Application" ? details._tag : typeof details.kind === "string" ? details.kind : "Cancelled"

// -- attributes ------------------------------------------------------------------------------------

export type Attributes = Readonly<Record<string, string | number | boolean>>

/** Describes the span that the caller is in. `describe` is called only if it is sampled. */
export const annotate = (
  describe: (span: Tracer.Span, context: Context.Context<never>) => void
): Effect.Effect<void> =>
  Effect.withFiberSucceed((fiber) => {
    const span = currentSpanOf(fiber)
    if (span?._tag === "Span" && span.sampled) describe(span, fiber.context)
  })

export const setAttributes = (span: Tracer.Span, attributes: Attributes): void => {
  for (const key in attributes) span.attribute(key, attributes[key])
}

export const describeInstance = (span: Tracer.Span, context: Context.Context<never>, instanceId: string): void => {
  span.attribute("duroxide.instance_id", instanceId)
  const url = dashboardUrl.inContext(context, instanceId)
  if (url !== undefined) span.attribute("duroxide.url", url)
}

/**
 * By OpenTelemetry's conventions for messaging: an instance is a conversation. Attributes are set one by one: an object
 * of them for each span would take as long as the rest of it.
 */
export const describeMessaging = (
  span: Tracer.Span,
  context: Context.Context<never>,
  { destination, instanceId, operation, type }: {
    readonly operation: string
    readonly type: "send" | "process"
    /** Name of an orchestration, an activity or a signal. */
    readonly destination: string | undefined
    readonly instanceId: string
  }
): void => {
  span.attribute("messaging.system", "duroxide")
  span.attribute("messaging.operation.name", operation)
  span.attribute("messaging.operation.type", type)
  span.attribute("messaging.message.conversation_id", instanceId)
  describeInstance(span, context, instanceId)
  if (destination !== undefined) span.attribute("messaging.destination.name", destination)
}

// -- statements ------------------------------------------------------------------------------------

/**
 * Runs a statement on behalf of several callers: its span is a child of the first one whose span is sampled, and linked
 * with the others that are. It has none if no caller's span is sampled.
 */
export const onBehalfOf = <A, E, R>(
  callers: ReadonlyArray<Tracer.AnySpan | undefined>,
  statement: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> => {
  const spans = new Set<Tracer.AnySpan>()
  for (const span of callers) {
    if (span?.sampled === true) spans.add(span)
  }
  const [parent, ...others] = spans
  if (parent === undefined) return statement
  return within(parent)(others.length === 0 ? statement : Effect.linkSpans(statement, others))
}

/** The span of a statement that has ended. */
export const past = (
  fiber: Fiber.Fiber<unknown, unknown>,
  name: string,
  options: {
    readonly parent: Tracer.AnySpan
    readonly startTime: bigint
    readonly endTime: bigint
    readonly attributes: Attributes
  }
): Tracer.Span => {
  const { attributes, endTime, parent, startTime } = options
  const span = fiber.cache.tracer!.span({
    name,
    parent: Option.some(parent),
    annotations: Context.empty(),
    links: [],
    startTime,
    kind: "client",
    root: false,
    sampled: parent.sampled
  })
  setAttributes(span, attributes)
  span.end(endTime, Exit.void)
  return span
}

/**
 * Makes the span of a statement that has claimed work, when a traced turn or activity asks for it: as a child of the
 * first one's parent. So a claim for work that is not traced, or not sampled, has no span.
 */
export type ClaimSpan = (parent: Tracer.AnySpan) => Tracer.AnySpan

/** Receives the `ClaimSpan` of a claim that runs inside. */
export const ClaimSpans = Context.Reference<((claim: ClaimSpan) => void) | undefined>(
  "duroxide-prisma/internal/ClaimSpans",
  { defaultValue: () => undefined }
)

/** Runs a claim; returns what it found, and its span if it has one. */
export const claiming = <A, E>(
  claim: Effect.Effect<A, E>
): Effect.Effect<{ readonly found: A; readonly claimSpan: ClaimSpan | undefined }, E> =>
  Effect.withFiber((fiber) => {
    if (!isOn(fiber)) return Effect.map(claim, (found) => ({ found, claimSpan: undefined }))
    let claimSpan: ClaimSpan | undefined
    return Effect.map(
      Effect.provideService(claim, ClaimSpans, (make) => {
        let span: Tracer.AnySpan | undefined
        claimSpan = (parent) => span ??= make(parent)
      }),
      (found) => ({ found, claimSpan })
    )
  })
