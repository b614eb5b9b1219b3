/**
 * Runs orchestrations turn by turn, without a store: decisions come back as messages.
 *
 * Whatever a test does, every turn is run three times, and must decide the same: by replaying, by replaying the row
 * texts of its history, and, if the previous turn left its program waiting, by resuming that.
 */
import { assert } from "@effect/vitest"
import type * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as References from "effect/References"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { isDeepStrictEqual } from "node:util"
import * as Activity from "../../src/Activity.ts"
import * as ErrorDetails from "../../src/model/ErrorDetails.ts"
import * as Event from "../../src/model/Event.ts"
import * as interruptSignal from "../../src/model/shared/interruptSignal.ts"
import type { PayloadSchema } from "../../src/model/shared/payload.ts"
import type * as WorkItem from "../../src/model/WorkItem.ts"
import * as Orchestration from "../../src/Orchestration.ts"
import { engine } from "../../src/replay/context.ts"
import type { Code } from "../../src/replay/interpreter.ts"
import * as turns from "../../src/replay/turn.ts"
import { orchestrationKey } from "../../src/runtime/handlers.ts"
import * as Signal from "../../src/Signal.ts"

/** Where the clock of every test begins, milliseconds since the Unix epoch. */
export const start = Date.UTC(2030, 0, 1)

export interface Options {
  readonly instanceId?: string
  readonly executionId?: number
  /** Encoded. */
  readonly input?: string
  /** The version stamped on new events: ours, unless the execution belongs to Duroxide. */
  readonly version?: { readonly major: number; readonly minor: number; readonly patch: number }
  readonly parent?: { readonly instance: string; readonly id: number; readonly executionId: number }
  /** What the execution before has left. */
  readonly keyValues?: ReadonlyMap<string, { readonly value: string; readonly lastUpdatedAtMs?: number }>
  readonly carried?: ReadonlyArray<readonly [signal: string, data: string]>
  readonly customStatus?: string
  /** False if a test examines what the code does on every replay. */
  readonly staysWarm?: false
}

type Program = Effect.Effect<unknown, unknown, Orchestration.Instance>

/** A program without payload Schemas: its result and its error travel as JSON. */
const plain = (program: Program): Code => () =>
  Effect.interruptible(program).pipe(
    Effect.map((value) => JSON.stringify(value) ?? "null"),
    Effect.mapError((error) => JSON.stringify(error) ?? "null"),
    Effect.uninterruptible
  )

/** What `toLayer` makes of a program. */
export const codeOf = <Name extends string, P extends PayloadSchema, A extends PayloadSchema, E extends PayloadSchema>(
  definition: Orchestration.Orchestration<Name, P, A, E>,
  program: (payload: P["Type"]) => Effect.Effect<A["Type"], E["Type"], Orchestration.Instance>
): Code =>
  Context.getUnsafe(
    Effect.runSync(Effect.scoped(Layer.build(definition.toLayer(program)))),
    orchestrationKey(definition.name, definition.version)
  )

/** One instance, and what a runtime and its store would hold of it. */
export class Instance {
  readonly instanceId: string
  readonly executionId: number
  readonly history: Array<Event.Event> = []
  nowMs = start
  /** How often the code continued outside a turn. */
  strays = 0
  /** What the code has logged, all replays included. */
  readonly logs: Array<unknown> = []
  /** All that was ever enqueued and is not cancelled. */
  readonly activities = new Map<number, WorkItem.Of<"ActivityExecute">>()
  readonly timers = new Map<number, WorkItem.Of<"TimerFired">>()
  /** By event id; cancelled ones still have to answer. */
  readonly children = new Map<number, WorkItem.Of<"StartOrchestration">>()
  last!: turns.Result
  /** What its code died of in the last turn. */
  diedOf: Cause.Cause<never> | undefined
  /** Turns that resumed the program of the previous turn. */
  resumed = 0
  private warm: turns.WarmProgram | undefined
  private code: Code
  private readonly options: Options

  constructor(program: Program | Code, options: Options = {}) {
    this.code = Effect.isEffect(program) ? plain(program) : program
    this.options = options
    this.instanceId = options.instanceId ?? "i"
    this.executionId = options.executionId ?? 1
  }

  /** From now on another program runs on the same history. */
  become(program: Program | Code): this {
    this.code = Effect.isEffect(program) ? plain(program) : program
    this.warm = undefined
    return this
  }

  /** Runs a turn; its decisions become part of the instance. */
  turn(...messages: ReadonlyArray<WorkItem.WorkItem>): turns.Result {
    // Without requests: they hold functions, and their events are in the turn.
    const { diedOf, requests: _, warm, ...result } = turns.run(this.claimed(messages))
    const logged = this.logs.length
    const strays = this.strays
    const { diedOf: __, requests: ___, warm: again, ...second } = turns.run({
      ...this.claimed(messages),
      history: this.history.map(throughText)
    })
    same(second, result, "a turn decides the same when it is run again")
    assert.strictEqual(again === undefined, warm === undefined)
    const ran = this.warm?.isSound() ? this.warm.resume({ nowMs: this.nowMs, messages }) : undefined
    if (ran !== undefined) {
      const { requests: ____, warm: goesOn, ...third } = ran
      same(third, result, "a turn decides the same when its program was kept")
      assert.strictEqual(goesOn === undefined, warm === undefined)
      this.resumed++
    }
    this.warm = this.options.staysWarm === false ? undefined : ran === undefined ? warm : ran.warm
    this.logs.length = logged
    this.strays = strays
    const { historyDelta } = result.turn
    for (const [index, event] of historyDelta.entries()) {
      const expected = this.history.length + index + 1
      assert.strictEqual(event.eventId, expected, "event ids are dense")
      assert.strictEqual(event.instanceId, this.instanceId)
      assert.strictEqual(event.executionId, this.executionId)
    }
    this.history.push(...historyDelta)
    for (const item of result.turn.workerItems) this.activities.set(item.id, item)
    for (const item of result.turn.orchestratorItems) {
      if (item._tag === "TimerFired") this.timers.set(item.id, item)
      if (item._tag === "StartOrchestration" && item.parentId !== null) this.children.set(item.parentId, item)
    }
    for (const { activityId } of result.turn.cancelledActivities) this.activities.delete(activityId)
    this.last = result
    this.diedOf = diedOf
    return result
  }

  get outcome(): turns.Outcome {
    return this.last.outcome
  }

  /** The result, decoded; fails when the instance has not completed. */
  get output(): unknown {
    const { outcome } = this
    if (outcome._tag !== "Completed") assert.fail(`the instance has not completed: ${JSON.stringify(outcome)}`)
    return JSON.parse(outcome.output)
  }

  /** Why it failed; fails when it has not. */
  get failure(): ErrorDetails.ErrorDetails {
    const { outcome } = this
    if (outcome._tag !== "Failed") assert.fail(`the instance has not failed: ${JSON.stringify(outcome)}`)
    return outcome.details
  }

  /** Events from `eventId` on, in short: `5 ActivityCompleted <2`. */
  events(from = 1): ReadonlyArray<string> {
    return this.history.slice(from - 1).map(brief)
  }

  /** What the last turn wrote. */
  get written(): ReadonlyArray<string> {
    return this.last.turn.historyDelta.map(brief)
  }

  // -- messages ----------------------------------------------------------------------------------

  readonly completed = (id: number, value: unknown = null): WorkItem.Of<"ActivityCompleted"> => {
    this.activities.delete(id)
    return {
      _tag: "ActivityCompleted",
      instance: this.instanceId,
      executionId: this.executionId,
      id,
      result: JSON.stringify(value)
    }
  }

  readonly failed = (id: number, error: unknown = "boom"): WorkItem.Of<"ActivityFailed"> =>
    this.failedWith(id, ErrorDetails.application("ActivityFailed", JSON.stringify(error)))

  readonly failedWith = (id: number, details: ErrorDetails.ErrorDetails): WorkItem.Of<"ActivityFailed"> => {
    this.activities.delete(id)
    return { _tag: "ActivityFailed", instance: this.instanceId, executionId: this.executionId, id, details }
  }

  readonly childCompleted = (parentId: number, value: unknown = null): WorkItem.Of<"SubOrchCompleted"> => {
    this.children.delete(parentId)
    return { _tag: "SubOrchCompleted", ...this.asParent, parentId, result: JSON.stringify(value) }
  }

  readonly childFailed = (
    parentId: number,
    details: ErrorDetails.ErrorDetails = ErrorDetails.application("OrchestrationFailed", `"boom"`)
  ): WorkItem.Of<"SubOrchFailed"> => {
    this.children.delete(parentId)
    return { _tag: "SubOrchFailed", ...this.asParent, parentId, details }
  }

  private get asParent() {
    return { parentInstance: this.instanceId, parentExecutionId: this.executionId }
  }

  readonly sent = (signal: string, value: unknown = null): WorkItem.Of<"QueueMessage"> => ({
    _tag: "QueueMessage",
    instance: this.instanceId,
    name: signal,
    data: JSON.stringify(value)
  })

  /** The next execution, with what the store and the message that begins it hand over. */
  next(): Instance {
    const message = this.last.turn.orchestratorItems.find((item) => item._tag === "ContinueAsNew")
    if (message === undefined) return assert.fail("the instance does not continue as new")
    const keyValues = new Map(this.options.keyValues)
    for (const event of this.history) {
      if (event._tag === "KeyValueSet") {
        keyValues.set(event.key, { value: event.value, lastUpdatedAtMs: event.lastUpdatedAtMs ?? 0 })
      }
      if (event._tag === "KeyValueCleared") keyValues.delete(event.key)
      if (event._tag === "KeyValuesCleared") keyValues.clear()
    }
    const next = new Instance(this.code, {
      ...this.options,
      executionId: this.executionId + 1,
      input: message.input,
      keyValues,
      carried: message.carryForwardEvents ?? [],
      ...(message.initialCustomStatus !== undefined && { customStatus: message.initialCustomStatus })
    })
    next.nowMs = this.nowMs
    return next
  }

  /** The timer falls due: the clock moves on to it. */
  readonly fired = (id: number): WorkItem.Of<"TimerFired"> => {
    const item = this.timers.get(id)
    if (item === undefined) return assert.fail(`no timer ${id} was ever enqueued`)
    this.timers.delete(id)
    this.nowMs = Math.max(this.nowMs, item.fireAtMs)
    return item
  }

  readonly raised = (name: string, value: unknown = null): WorkItem.Of<"ExternalRaised"> => ({
    _tag: "ExternalRaised",
    instance: this.instanceId,
    name,
    data: JSON.stringify(value)
  })

  readonly cancel = (reason: string): WorkItem.Of<"CancelInstance"> => ({
    _tag: "CancelInstance",
    instance: this.instanceId,
    reason
  })

  readonly interrupted = (reason: string): WorkItem.Of<"QueueMessage"> => ({
    _tag: "QueueMessage",
    instance: this.instanceId,
    name: interruptSignal.name,
    data: interruptSignal.encode(reason)
  })

  /** The input of the next turn. */
  claimed(messages: ReadonlyArray<WorkItem.WorkItem>): turns.Input {
    const { carried = [], customStatus, parent } = this.options
    return {
      instanceId: this.instanceId,
      executionId: this.executionId,
      nowMs: this.nowMs,
      history: this.history,
      started: {
        _tag: "OrchestrationStarted",
        name: "Tested",
        version: "1.0.0",
        input: this.options.input ?? "null",
        parentInstance: parent?.instance ?? null,
        parentId: parent?.id ?? null,
        ...(parent !== undefined && { parentExecutionId: parent.executionId }),
        ...(carried.length > 0 && { carryForwardEvents: carried }),
        ...(customStatus !== undefined && { initialCustomStatus: customStatus })
      },
      messages,
      version: this.options.version ?? { major: 1000, minor: 1, patch: 0 },
      code: this.code,
      keyValues: this.options.keyValues ?? new Map(),
      services: Context.empty().pipe(
        Context.add(References.CurrentLoggers, new Set([Logger.make(({ message }) => void this.logs.push(message))])),
        Context.add(References.MinimumLogLevel, "All")
      ),
      onStray: () => void this.strays++
    }
  }
}

/** An answer of an activity, and how long it takes. */
export interface Answer {
  readonly value?: unknown
  readonly error?: unknown
  /** Milliseconds; 0 unless said. */
  readonly after?: number
}

export interface Play extends Options {
  /** Handlers by activity name; what they do not return an `Answer` for, they answer at once. */
  readonly activities?: { readonly [name: string]: (input: any, attempt: number) => Answer }
  /** Signals by the time they are sent, milliseconds after the start. */
  readonly signals?: ReadonlyArray<{ readonly at: number; readonly name: string; readonly value?: unknown }>
}

/** Runs an instance until it ends, in virtual time, one message per turn in the order of their due times. */
export const play = (program: Program | Code, options: Play = {}): Instance => {
  const instance = new Instance(program, options)
  const attempts = new Map<string, number>()
  const pending: Array<{ readonly at: number; readonly message: () => WorkItem.WorkItem }> = []
  for (const { at, name, value } of options.signals ?? []) {
    pending.push({ at: start + at, message: () => instance.raised(name, value) })
  }
  const collect = ({ turn }: turns.Result) => {
    for (const item of turn.orchestratorItems) {
      if (item._tag === "TimerFired") pending.push({ at: item.fireAtMs, message: () => instance.fired(item.id) })
    }
    for (const { id, input, name } of turn.workerItems) {
      const attempt = (attempts.get(name) ?? 0) + 1
      attempts.set(name, attempt)
      const handler = options.activities?.[name]
      if (handler === undefined) assert.fail(`the test has no handler for activity ${name}`)
      const { after = 0, error, value } = handler(JSON.parse(input), attempt)
      pending.push({
        at: instance.nowMs + after,
        message: () => error === undefined ? instance.completed(id, value) : instance.failed(id, error)
      })
    }
  }
  collect(instance.turn())
  for (let turn = 0; instance.outcome._tag === "Waiting"; turn++) {
    if (turn > 10_000) assert.fail("the instance does not end")
    const next = pending.reduce(
      (a, b) => b.at < a.at ? b : a,
      pending[0] ?? assert.fail("nothing can wake the instance")
    )
    pending.splice(pending.indexOf(next), 1)
    instance.nowMs = Math.max(instance.nowMs, next.at)
    collect(instance.turn(next.message()))
  }
  return instance
}

/** Definitions are made once, as their Schemas cost more than their use here. */
const once = <A>(make: (name: string) => A) => {
  const made = new Map<string, A>()
  return (name: string): A => {
    const known = made.get(name) ?? make(name)
    made.set(name, known)
    return known
  }
}

const anything = { payload: Schema.Unknown, success: Schema.Unknown, error: Schema.Unknown }

/** An activity of any JSON. */
export const activity = once((name) => Activity.make(name, anything).execute)

const orchestration = once((name) => Orchestration.make(name, anything))

/** A child of any JSON, under the id given or one of its own. */
export const child = (name: string, input: unknown = null, instance?: string) => {
  const { execute, executeWithId } = orchestration(name)
  return instance === undefined ? execute(input) : executeWithId({ instanceId: instance, payload: input })
}

/** A detached start. */
export const detached = (name: string, instance: string) =>
  Orchestration.make(name).startDetached({ instanceId: instance })

/** The next execution of the tested orchestration. */
export const continueAsNew = (input: unknown = null) => orchestration("Tested").continueAsNew(input)

/** The oldest signal of any JSON that was not taken. */
export const take = once((name) => Signal.make(name, { payload: Schema.Unknown }).wait)

/** A value of any text. */
export const set = (key: string, value: string) =>
  Effect.flatMap(engine, ({ request }) => request({ _tag: "SetKeyValue", key, value }))

/** A lossy signal of any JSON. */
export const signal = once((name) => Signal.make(name, { payload: Schema.Unknown, unawaited: "lost" }).wait)

export const brief = (event: Event.Event): string =>
  `${event.eventId} ${event._tag}${event.sourceEventId === null ? "" : ` <${event.sourceEventId}`}${
    "reason" in event ? ` ${event.reason}` : ""
  }`

/** The kinds of the schedule events of a history, without their ids. */
export const calls = (history: ReadonlyArray<Event.Event>): ReadonlyArray<string> =>
  history.flatMap((event) =>
    event._tag === "ActivityScheduled"
      ? `${event.name}(${event.input})`
      : event._tag === "TimerCreated"
      ? `sleep ${event.fireAtMs - event.timestampMs}`
      : event._tag === "ExternalSubscribed"
      ? `wait ${event.name}`
      : []
  )

// internal

// Chai takes seconds to compare a wide fan-out.
const same = (actual: turns.Result, expected: turns.Result, message: string) => {
  if (!isDeepStrictEqual(actual, expected)) assert.deepStrictEqual(actual, expected, message)
}

const throughText = (event: Event.Event): Event.Event => Result.getOrThrow(Event.decode(Event.encode(event)))
