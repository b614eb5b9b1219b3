/**
 * Random orchestrations, and a way to run them without replay.
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import * as Scheduler from "effect/Scheduler"
import * as interruptSignal from "../../src/model/shared/interruptSignal.ts"
import type * as WorkItem from "../../src/model/WorkItem.ts"
import * as Orchestration from "../../src/Orchestration.ts"
import type { Action, Awaited, Immediate } from "../../src/replay/action.ts"
import { Engine, engine, OrchestrationContext } from "../../src/replay/context.ts"
import { activity, child, continueAsNew, set, signal, take } from "./play.ts"

/** Numbers from a seed, the same in every run. */
export class Dice {
  private state: number
  constructor(seed: number) {
    this.state = seed
  }
  /** From 0 up to 1. */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) | 0
    let t = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
  below(n: number): number {
    return Math.floor(this.next() * n)
  }
  pick<A>(items: ReadonlyArray<A>): A {
    return items[this.below(items.length)]!
  }
  happens(probability: number): boolean {
    return this.next() < probability
  }
  shuffle<A>(items: ReadonlyArray<A>): Array<A> {
    return items.map((item) => [this.next(), item] as const).sort(([a], [b]) => a - b).map(([, item]) => item)
  }
}

type Program = Effect.Effect<unknown, unknown, OrchestrationContext>

/** What a program is made of; the text is what a failing test shows. */
export interface RandomProgram {
  readonly text: string
  readonly program: Program
}

/** A program nested up to `depth`; `change` may replace each of its leaves, which are numbered. */
export const make = (
  dice: Dice,
  depth: number,
  change: (leaf: RandomProgram, n: number) => RandomProgram = (leaf) => leaf
): RandomProgram => {
  let calls = 0
  const leaf = (): RandomProgram => {
    const n = ++calls
    return change(original(n), n)
  }
  const original = (n: number): RandomProgram => {
    const name = dice.pick(["A", "B", "C"])
    const ms = dice.pick([0, 1, 10, 10, 1000])
    const called: RandomProgram = { text: `${name}(${n})`, program: activity(name)(n) }
    const slept: RandomProgram = { text: `sleep(${ms})`, program: Effect.as(Effect.sleep(ms), `slept ${ms}`) }
    const waited: RandomProgram = { text: `wait(${name})`, program: signal(name) }
    const begun: RandomProgram = { text: `child ${name}(${n})`, program: child(name, n) }
    const taken: RandomProgram = { text: `take(${name})`, program: take(name) }
    return dice.pick([
      begun,
      begun,
      taken,
      taken,
      { text: `set(${name}, ${n})`, program: set(name, String(n)) },
      { text: `get(${name})`, program: get(name) },
      { text: `status(${n})`, program: Orchestration.setCustomStatus(String(n)) },
      { text: "status", program: Orchestration.customStatus },
      dice.happens(0.3) ? { text: `continue(${n})`, program: continueOrGoOn(n) } : called,
      called,
      called,
      called,
      called,
      called,
      slept,
      slept,
      slept,
      waited,
      waited,
      waited,
      { text: "now", program: Clock.currentTimeMillis },
      { text: "random", program: Random.nextIntBetween(0, 1000) },
      { text: `fail(${n})`, program: Effect.fail(`failed ${n}`) }
    ])
  }
  const several = (depth: number) => Array.from({ length: 2 + dice.below(3) }, () => node(depth))
  const texts = (nodes: ReadonlyArray<RandomProgram>) => nodes.map(({ text }) => text).join(", ")
  const programs = (nodes: ReadonlyArray<RandomProgram>) => nodes.map(({ program }) => program)

  const node = (depth: number): RandomProgram => {
    if (depth === 0 || dice.happens(0.1)) return leaf()
    const inner = () => node(depth - 1)
    return dice.pick<() => RandomProgram>([
      () => {
        const nodes = several(depth - 1)
        return { text: `seq(${texts(nodes)})`, program: Effect.all(programs(nodes)) }
      },
      () => {
        const nodes = several(depth - 1)
        const concurrency = dice.pick([2, "unbounded"] as const)
        return { text: `all ${concurrency}(${texts(nodes)})`, program: Effect.all(programs(nodes), { concurrency }) }
      },
      () => {
        const nodes = several(depth - 1)
        const program = Effect.all(programs(nodes), { concurrency: "unbounded", mode: "result" })
        return { text: `settled(${texts(nodes)})`, program }
      },
      () => {
        const nodes = several(depth - 1)
        return { text: `race(${texts(nodes)})`, program: Effect.raceAll(programs(nodes)) }
      },
      () => {
        const nodes = several(depth - 1)
        return { text: `raceFirst(${texts(nodes)})`, program: Effect.raceAllFirst(programs(nodes)) }
      },
      () => {
        const { program, text } = inner()
        const [kind, schedule] = dice.pick(
          [
            ["at once", Schedule.recurs(9)],
            ["exponential", Schedule.exponential(10)],
            ["jittered", Schedule.jittered(Schedule.spaced(100))],
            ["spaced", Schedule.spaced(5)]
          ] as const
        )
        return { text: `retry ${kind}(${text})`, program: Effect.retry(program, { times: 2, schedule }) }
      },
      () => {
        const { program, text } = inner()
        return { text: `repeat(${text})`, program: Effect.repeat(program, { times: 1, schedule: Schedule.spaced(7) }) }
      },
      () => {
        const { program, text } = inner()
        return {
          text: `catch(${text})`,
          program: Effect.catch(program, (error) => Effect.succeed(`caught ${String(error)}`))
        }
      },
      () => {
        const { program, text } = inner()
        return {
          text: `timeout(${text})`,
          program: Effect.map(Effect.timeoutOption(program, 20), Option.getOrElse(() => "timed out"))
        }
      },
      () => {
        const [child, beside] = [inner(), inner()]
        return {
          text: `fork(${child.text} | ${beside.text})`,
          program: Effect.gen(function*() {
            const fiber = yield* Effect.forkChild(child.program)
            const first = yield* beside.program
            return [first, yield* Fiber.join(fiber)]
          })
        }
      },
      () => {
        const [child, beside] = [inner(), inner()]
        return {
          text: `leave(${child.text} | ${beside.text})`,
          program: Effect.andThen(Effect.forkChild(child.program), beside.program)
        }
      },
      () => {
        const { program, text } = inner()
        const n = ++calls
        const undo = Effect.ignore(activity("A")(`undo ${n}`))
        return dice.happens(0.5)
          ? { text: `undone(${text})`, program: Effect.onInterrupt(program, () => undo) }
          : { text: `ensuring(${text})`, program: Effect.ensuring(program, undo) }
      }
    ])()
  }
  return node(depth)
}

/** At most three executions. */
const continueOrGoOn = (n: number): Program =>
  Effect.flatMap(
    OrchestrationContext,
    ({ executionId }) => executionId < 3 ? continueAsNew(n) : Effect.succeed("the last one")
  )

const get = (key: string): Program =>
  Effect.flatMap(
    engine,
    ({ keyValues }) => Effect.map(keyValues, (values) => values.get(key) ?? "nothing")
  )

/** What an execution leaves to the next one. */
export interface Left {
  readonly customStatus: string | null
  readonly keyValues: ReadonlyMap<string, string>
  readonly messages: ReadonlyArray<WorkItem.Of<"QueueMessage">>
}

export const nothingLeft: Left = { customStatus: null, keyValues: new Map(), messages: [] }

/**
 * Runs a program once, without interruption, on Effect's own scheduler: operations are callbacks that the messages
 * call, nothing is recorded and nothing replayed.
 */
export class Uninterrupted {
  /** Operations begun and not bound yet. */
  private readonly fresh: Array<Operation | Immediate> = []
  private readonly operations = new Map<number, Operation>()
  private readonly answered = new Set<number>()
  private readonly fiber: Fiber.Fiber<unknown, unknown>
  /** Bound dequeues and unread messages, both oldest first. */
  private readonly takers: Array<Operation> = []
  private readonly unread: Array<WorkItem.Of<"QueueMessage">>
  private readonly executionId: number
  private readonly values: Map<string, string>
  private customStatus: string | null
  private pending = 0
  private nowMs: number
  private isInterrupted = false
  /** The input of the next execution, once the program asked for it. */
  continued: string | undefined

  constructor(
    program: Program,
    options: { readonly nowMs: number; readonly seed: string; readonly executionId: number; readonly left: Left }
  ) {
    this.nowMs = options.nowMs
    this.executionId = options.executionId
    this.values = new Map(options.left.keyValues)
    this.customStatus = options.left.customStatus
    this.unread = [...options.left.messages]
    const perform = (action: Awaited) =>
      Effect.callback<never>((resume) => {
        if (this.continued !== undefined) return
        const operation: Operation = { action, resume, state: "open" }
        this.fresh.push(operation)
        return Effect.suspend(() => {
          if (operation.state !== "open") return Effect.void
          if (action._tag !== "StartSubOrchestration" || operation.isBound !== true) {
            operation.state = "dropped"
            return Effect.void
          }
          operation.state = "interrupted"
          return Effect.callback<void>((resume) => void (operation.resume = resume as typeof operation.resume))
        })
      })
    const scheduler = new SharedScheduler((by) => void (this.pending += by))
    const clock: Clock.Clock = {
      currentTimeMillisUnsafe: () => this.nowMs,
      currentTimeMillis: Effect.sync(() => this.nowMs),
      currentTimeNanosUnsafe: () => BigInt(this.nowMs) * 1_000_000n,
      currentTimeNanos: Effect.sync(() => BigInt(this.nowMs) * 1_000_000n),
      monotonicTimeNanosUnsafe: () => BigInt(this.nowMs) * 1_000_000n,
      monotonicTimeNanos: Effect.sync(() => BigInt(this.nowMs) * 1_000_000n),
      sleep: (duration) =>
        Effect.suspend(() => {
          const ms = Math.ceil(Duration.toMillis(duration))
          return ms <= 0 ? Effect.yieldNow : Effect.asVoid(perform({ _tag: "CreateTimer", fireAtMs: this.nowMs + ms }))
        })
    }
    const request = (action: Immediate) =>
      Effect.sync(() => {
        if (this.continued !== undefined) return
        this.fresh.push(action)
        if (action._tag === "SetKeyValue") this.values.set(action.key, action.value)
        if (action._tag === "UpdateCustomStatus") this.customStatus = action.status
      })
    const port = {
      perform: perform as Engine["perform"],
      request,
      changed: () => Effect.succeed(true),
      append: () => Effect.void,
      historySize: Effect.succeed(0),
      continueAsNew: (input: string) => Effect.callback<never>(() => void (this.continued ??= input)),
      customStatus: Effect.sync(() => this.customStatus),
      attributes: Effect.succeed({}),
      keyValues: Effect.sync(() => this.values),
      keyValueTimes: Effect.succeed(new Map<string, number>()),
      verdict: () => Effect.die("random programs take no questions"),
      unreadable: Effect.die
    }
    const context = {
      instanceId: "oracle",
      executionId: options.executionId,
      orchestrationName: "Oracle",
      orchestrationVersion: "1.0.0",
      isReplaying: Effect.succeed(false)
    }
    const services = Context.empty().pipe(
      Context.add(OrchestrationContext, context),
      Context.add(Engine, port),
      Context.add(Scheduler.Scheduler, scheduler),
      Context.add(Clock.Clock, clock)
    )
    this.fiber = Effect.runForkWith(services)(Random.withSeed(program, options.seed))
  }

  /** Waits until everything that can run has run. */
  async settle(): Promise<void> {
    while (this.pending > 0) await new Promise<void>((resolve) => void setImmediate(resolve))
  }

  /** Hands over a batch, one message after the other. */
  async deliver(messages: ReadonlyArray<WorkItem.WorkItem>, nowMs: number): Promise<void> {
    this.nowMs = Math.max(this.nowMs, nowMs)
    // Left by the execution before.
    if (this.unread.some(({ name }) => name === interruptSignal.name)) await this.interrupt()
    for (const message of messages) {
      if (this.fiber.pollUnsafe() !== undefined && this.continued === undefined) return
      if (message._tag === "QueueMessage") {
        this.unread.push(message)
        if (message.name === interruptSignal.name) await this.interrupt()
        await this.hand(message.name)
        continue
      }
      const operation = this.addressee(message)
      if (operation?.state === "open" || operation?.state === "interrupted") await this.answer(operation, message)
    }
  }

  private async interrupt(): Promise<void> {
    if (this.isInterrupted || this.continued !== undefined) return
    this.isInterrupted = true
    this.fiber.interruptUnsafe()
    await this.settle()
  }

  private async answer(operation: Operation, message: WorkItem.WorkItem): Promise<void> {
    if (this.continued !== undefined) return
    operation.state = "answered"
    const _tag = message._tag === "SubOrchCompleted"
      ? "SubOrchestrationCompleted"
      : message._tag === "SubOrchFailed"
      ? "SubOrchestrationFailed"
      : message._tag
    operation.resume(Effect.succeed({ ...message, _tag } as never))
    await this.settle()
  }

  /** The oldest kept signal of a name goes to the oldest taker. */
  private async hand(name: string): Promise<void> {
    const taker = this.takers.find(({ action, state }) =>
      state === "open" && action._tag === "DequeueEvent" && action.name === name
    )
    const index = this.unread.findIndex((message) => message.name === name)
    if (this.continued !== undefined || taker === undefined || index < 0) return
    await this.answer(taker, this.unread.splice(index, 1)[0]!)
  }

  private addressee(message: WorkItem.WorkItem): Operation | undefined {
    switch (message._tag) {
      case "ActivityCompleted":
      case "ActivityFailed":
      case "TimerFired":
        return this.asked(message.executionId, message.id)
      case "SubOrchCompleted":
      case "SubOrchFailed":
        return this.asked(message.parentExecutionId, message.parentId)
      case "ExternalRaised":
        return [...this.operations.values()].find(({ action, state }) =>
          state === "open" && action._tag === "WaitExternal" && action.name === message.name
        )
      default:
        return assert.fail(message._tag)
    }
  }

  private asked(executionId: number | undefined, id: number): Operation | undefined {
    if (executionId !== this.executionId || this.answered.has(id)) return undefined
    this.answered.add(id)
    return this.operations.get(id)
  }

  /** Gives new requests ids from `firstId`, in order, and returns them. */
  async bind(firstId: number): Promise<ReadonlyArray<Action>> {
    const begun: Array<Action> = []
    for (let next = this.fresh.shift(); next !== undefined; next = this.fresh.shift()) {
      if ("_tag" in next) {
        begun.push(next)
        continue
      }
      this.operations.set(firstId + begun.length, next)
      next.isBound = true
      begun.push(next.action)
      if (next.action._tag !== "DequeueEvent") continue
      this.takers.push(next)
      await this.hand(next.action.name)
    }
    return begun
  }

  get left(): Left {
    return { customStatus: this.customStatus, keyValues: this.values, messages: this.unread }
  }

  /** Ids of unanswered operations that the program has dropped. */
  dropped(tag: Action["_tag"]): ReadonlyArray<number> {
    return [...this.operations].flatMap(([id, { action, state }]) =>
      (state === "dropped" || state === "interrupted") && action._tag === tag && !this.answered.has(id) ? id : []
    )
  }

  get exit(): Exit.Exit<unknown, unknown> | undefined {
    return this.fiber.pollUnsafe()
  }
}

// internal

interface Operation {
  readonly action: Awaited
  resume: (effect: Effect.Effect<never>) => void
  state: "open" | "answered" | "dropped" | "interrupted"
  isBound?: true
}

/** Effect's scheduler with one queue for all fibers; counts the scheduled tasks. */
class SharedScheduler extends Scheduler.MixedScheduler {
  private readonly shared: ReturnType<Scheduler.MixedScheduler["makeDispatcher"]>
  constructor(count: (by: number) => void) {
    super("async", (task) => {
      count(1)
      const handle = setImmediate(() => {
        task()
        count(-1)
      })
      return () => {
        count(-1)
        clearImmediate(handle)
      }
    })
    this.shared = super.makeDispatcher()
  }
  override makeDispatcher() {
    return this.shared
  }
}
