/**
 * Random orchestrations that crash at every boundary of their turns must end like those that never crash.
 *
 * Every group of programs runs several times on the real runtime, in virtual time. Each instance receives batches that
 * only depend on what it has done so far. A crash takes the program in memory along: before a turn is stored, so that
 * another process has to run the turn again, or after it, so that the next one must replay.
 *
 * With optimistic turns, some batches are outcomes of activities that end here, so that turns are stored with them.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { ErrorDetails, FromDriver, Provider, ProviderError, WorkItem } from "duroxide-prisma/provider"
import type { ErrorDetails as Details, Event } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as interruptSignal from "../../src/model/shared/interruptSignal.ts"
import * as memory from "../../src/provider/memory/driver.ts"
import * as tables from "../../src/provider/memory/tables.ts"
import { Dice, make } from "../replay/randomPrograms.ts"
import { times } from "../utils/times.ts"

const groupSize = 50
const programs = times(2) * groupSize
const depth = 5
const firstSeed = 5_000

/** Whether the process dies around the `n`-th attempt to store a turn of an instance. */
type Crash = (instanceId: string, n: number) => "before" | "after" | undefined

interface Mode {
  readonly warmInstances: number
  readonly crash: Crash
  readonly optimisticTurns?: boolean
}

const modes: { readonly [name: string]: Mode } = {
  "without warm programs": { warmInstances: 0, crash: () => undefined },
  "with warm programs": { warmInstances: 1_000, crash: () => undefined },
  "crash before every turn is stored": { warmInstances: 1_000, crash: (_, n) => n % 2 === 1 ? "before" : undefined },
  "crash after every turn is stored": { warmInstances: 1_000, crash: () => "after" },
  "crashes of both kinds, programs that give way": {
    warmInstances: groupSize / 2,
    crash: (instanceId, n) => new Dice(Number(instanceId) + 7 * n).pick(["before", "after", undefined, undefined])
  },
  "with optimistic turns": { warmInstances: 1_000, crash: () => undefined, optimisticTurns: true },
  "with optimistic turns, crash after every second turn is stored": {
    warmInstances: 1_000,
    crash: (_, n) => n % 2 === 1 ? "after" : undefined,
    optimisticTurns: true
  },
  "with optimistic turns, crashes of both kinds, programs that give way": {
    warmInstances: groupSize / 2,
    crash: (instanceId, n) => new Dice(Number(instanceId) + 7 * n).pick(["before", "after", undefined, undefined]),
    optimisticTurns: true
  }
}

/** The outcome of an instance. */
interface Story {
  /** Stored events by execution, as row texts. */
  readonly executions: ReadonlyArray<ReadonlyArray<string>>
  readonly status: unknown
}

describe("Runtime", () => {
  it.effect(
    "random programs end with the same result and history, however often they crash",
    () =>
      Effect.gen(function*() {
        const ways = Object.keys(modes).length
        const counts = { crashes: 0, events: 0, instances: 0, optimistic: 0 }
        for (let group = 0; group < programs; group += groupSize) {
          const seeds = Array.from({ length: groupSize }, (_, index) => firstSeed + group + index)
          let expected: ReadonlyMap<string, Story> | undefined
          for (const [name, mode] of Object.entries(modes)) {
            const run = yield* runGroup(seeds, mode)
            counts.crashes += run.crashes
            counts.instances += run.stories.size
            counts.optimistic += run.optimistic
            for (const { executions } of run.stories.values()) counts.events += executions.flat().length
            expected ??= run.stories
            for (const [instanceId, story] of expected) {
              assert.deepStrictEqual(run.stories.get(instanceId), story, `${instanceId}, ${name}`)
            }
            assert.strictEqual(run.stories.size, expected.size)
          }
        }
        console.log(
          `${programs} programs in ${ways} ways: ${counts.instances} instances, ${counts.events} events, ${counts.crashes} crashes, ${counts.optimistic} optimistic turns stored`
        )
        assert.isAbove(counts.crashes, 10 * programs)
        assert.isAbove(counts.optimistic, 3 * programs)
      })
  )
})

// internal

const anything = { payload: Schema.Unknown, success: Schema.Unknown, error: Schema.Unknown }
const Random = Orchestration.make("Random", anything)

/** An instance is named after the seed of its program. */
const RandomLive = Random.toLayer(() =>
  Effect.flatMap(Orchestration.Instance, ({ instanceId }) => make(new Dice(Number(instanceId)), depth).program)
)

const activities = ["A", "B", "C"].map((name) => Activity.make(name, anything))

type Outcome = WorkItem.Of<"ActivityCompleted"> | WorkItem.Of<"ActivityFailed">

/** Handlers that end when the sender of the messages says so, and how. */
const handlers = (begun: Map<string, Deferred.Deferred<unknown, unknown>>) =>
  activities.map((activity) =>
    activity.toLayer(() =>
      Effect.flatMap(Activity.Call, ({ activityId, executionId, instanceId }) => {
        const end = Deferred.makeUnsafe<unknown, unknown>()
        begun.set(keyOf(instanceId, executionId, activityId), end)
        return Deferred.await(end)
      })
    )
  )

const keyOf = (instanceId: string | null, executionId: number | null, activityId: number | null) =>
  `${instanceId} ${executionId} ${activityId}`

const runGroup = Effect.fnUntraced(function*(seeds: ReadonlyArray<number>, mode: Mode) {
  const { optimisticTurns = false } = mode
  const store = tables.make()
  const instances = new Map<string, Instance>()
  const instanceOf = (instanceId: string) => {
    const known = instances.get(instanceId) ?? new Instance(instanceId)
    instances.set(instanceId, known)
    return known
  }
  let crashes = 0
  let optimistic = 0
  const begun = new Map<string, Deferred.Deferred<unknown, unknown>>()
  // The sender of the messages plays the children.
  const withoutChildren = (turn: Provider.Turn): Provider.Turn => ({
    ...turn,
    orchestratorItems: turn.orchestratorItems.filter((item) => !isForChild(item))
  })
  const crashOf = (instance: Instance) => {
    const crash = mode.crash(instance.instanceId, ++instance.attempts)
    if (crash !== undefined) crashes++
    return crash
  }
  const crashing = (provider: Provider.Provider["Service"]): Provider.Provider["Service"] => {
    const locked = new Map<string, string>()
    return {
      ...provider,
      fetchOrchestrationItem: (options) =>
        Effect.tap(
          provider.fetchOrchestrationItem(options),
          (claimed) =>
            Effect.sync(() =>
              Option.isSome(claimed) && locked.set(claimed.value.lockToken, claimed.value.item.instanceId)
            )
        ),
      onStart: (begin) =>
        provider.onStart((start, ...given) => {
          const first = begin(start, ...given)
          if (first === undefined) return undefined
          const instance = instanceOf(start.instance)
          const crash = crashOf(instance)
          if (crash === "before") {
            first.settled(Option.none())
            return undefined
          }
          return {
            ...first,
            turn: withoutChildren(first.turn),
            settled: (stored) => {
              if (Option.isSome(stored)) {
                instance.note(first.turn)
                optimistic++
              }
              first.settled(crash === "after" ? Option.none() : stored)
            }
          }
        }),
      advanceOrchestration: (turn) =>
        Effect.suspend(() => {
          const instance = instanceOf(turn.instanceId)
          const crash = crashOf(instance)
          return crash === "before"
            ? Effect.fail(died)
            : provider.advanceOrchestration({ ...turn, turn: withoutChildren(turn.turn) }).pipe(
              Effect.tap(({ _tag }) =>
                Effect.sync(() => {
                  if (_tag !== "Advanced") return
                  instance.note(turn.turn)
                  optimistic++
                })
              ),
              (advanced) => crash === "after" ? Effect.andThen(advanced, Effect.fail(died)) : advanced
            )
        }),
      ackOrchestrationItem: (lockToken, turn) =>
        Effect.suspend(() => {
          const instance = instanceOf(locked.get(lockToken)!)
          const crash = crashOf(instance)
          return crash === "before"
            ? Effect.andThen(
              provider.abandonOrchestrationItem({ lockToken, delay: Option.none(), ignoreAttempt: true }),
              Effect.fail(died)
            )
            : Effect.andThen(
              Effect.tap(
                provider.ackOrchestrationItem(lockToken, withoutChildren(turn)),
                () => Effect.sync(() => instance.note(turn))
              ),
              crash === "after" ? Effect.fail(died) : Effect.void
            )
        })
    }
  }
  const runtime = Runtime.layer({ orchestrations: [Random], activities }).pipe(
    Layer.provide([RandomLive, ...handlers(begun)]),
    Layer.provide(RuntimeConfig.layer({
      pollTimeout: "1000 days",
      warmInstances: mode.warmInstances,
      optimisticTurns,
      // Where the sender plays the activities, none runs here.
      tags: optimisticTurns ? { _tag: "DefaultOnly" } : { _tag: "None" },
      workerConcurrency: 1_000,
      orchestrationConcurrency: groupSize,
      cancellationCheckInterval: Infinity,
      workerLockTimeout: "1000 days",
      sessionIdleTimeout: "1000 days",
      shutdownTimeout: 0
    })),
    Layer.provide(Layer.effect(Provider.Provider, Effect.map(Provider.Provider, crashing)))
  )
  const app = Layer.mergeAll(runtime, Client.layer).pipe(
    Layer.provideMerge(FromDriver.layer({ longPolling: { aggressivePollInterval: "1000 days" } })),
    Layer.provide(memory.layer(store)),
    Layer.provide(Logger.layer([]))
  )
  return yield* Effect.gen(function*() {
    const client = yield* Client.Client
    const provider = yield* Provider.Provider
    const [first, ...others] = seeds
    // Its claim is where the process learns the time of the store, which the first turns of the others need.
    for (const some of [[first!], others]) {
      yield* Effect.forEach(some, (seed) => client.start(Random, { instanceId: String(seed), payload: seed }))
      yield* settled(store, optimisticTurns)
    }
    for (let round = 1; [...instances.values()].some((instance) => !instance.isOver); round++) {
      if (round > 500) assert.fail(`${[...instances.values()].find((one) => !one.isOver)!.instanceId} does not end`)
      const now = yield* Clock.currentTimeMillis
      const busy = new Set(
        [...store.messages.values()].flatMap((message) => message.visibleAtMs <= now + 1 ? message.instanceId : [])
      )
      const messages: Array<WorkItem.WorkItem> = []
      const outcomes: Array<Outcome> = []
      for (const instance of instances.values()) {
        const batch = instance.nextBatch(round)
        const ends = batch.filter(isOutcome)
        const endHere = optimisticTurns && !busy.has(instance.instanceId) && ends.length === batch.length &&
          ends.every(({ executionId, id }) => begun.has(keyOf(instance.instanceId, executionId, id)))
        if (endHere) outcomes.push(...ends)
        else messages.push(...batch)
      }
      // They arrive together: when the clock moves on.
      yield* Effect.forEach(
        messages,
        (message) => provider.enqueueForOrchestrator({ message, delay: Option.some(Duration.millis(1)) }),
        { concurrency: "unbounded", discard: true }
      )
      yield* TestClock.adjust(1)
      for (const outcome of outcomes) {
        const key = keyOf(outcome.instance, outcome.executionId, outcome.id)
        const end = begun.get(key)!
        begun.delete(key)
        Deferred.doneUnsafe(
          end,
          outcome._tag === "ActivityCompleted"
            ? Effect.succeed(JSON.parse(outcome.result))
            : Effect.fail(errorOf(outcome))
        )
      }
      yield* settled(store, optimisticTurns, outcomes)
      yield* TestClock.adjust(new Dice(round).pick([0, 0, 1, 5, 50, round > 10 ? 1_000 : 0]))
      yield* settled(store, optimisticTurns)
    }
    const stories = new Map<string, Story>()
    for (const { instanceId } of instances.values()) {
      const ofInstance = store.history.get(instanceId)!
      stories.set(instanceId, {
        executions: [...ofInstance.values()].map((events) => [...events.values()]),
        status: yield* client.status(instanceId)
      })
    }
    return { stories, crashes, optimistic }
  }).pipe(Effect.provide(Layer.provideMerge(app, TestClock.layer()), { local: true }))
})

const died = new ProviderError.ProviderError({
  operation: "ackOrchestrationItem",
  reason: new ProviderError.LockLost({ lockToken: "of a process that died" })
})

/**
 * Waits until nothing can happen at this time: every visible message is processed, every activity is claimed if any is,
 * and these outcomes are stored.
 */
const settled = Effect.fnUntraced(function*(
  store: tables.Tables,
  claimsActivities: boolean,
  outcomes: ReadonlyArray<Outcome> = []
) {
  const ended = new Set(outcomes.map(({ executionId, id, instance }) => keyOf(instance, executionId, id)))
  // The provider learns of what is stored a little later.
  for (let quiet = 0; quiet < 5;) {
    const now = yield* Clock.currentTimeMillis
    const isQuiet = store.locks.size === 0 && [...store.messages.values()].every(({ visibleAtMs }) => visibleAtMs > now)
    const areClaimed = !claimsActivities || [...store.activities.values()].every(({ lock }) => lock !== null)
    const areStored = [...store.activities.values()].every(({ activityId, executionId, instanceId }) =>
      !ended.has(keyOf(instanceId, executionId, activityId))
    )
    quiet = isQuiet && areClaimed && areStored ? quiet + 1 : 0
    yield* Effect.promise(() => new Promise<void>((resolve) => void setImmediate(resolve)))
  }
})

/** What a sender knows of an instance: what it has stored. */
class Instance {
  readonly instanceId: string
  attempts = 0
  isOver = false
  private executionId = 1
  private turns = 0
  private readonly activities = new Map<number, WorkItem.Of<"ActivityExecute">>()
  private readonly children = new Map<number, WorkItem.Of<"StartOrchestration">>()
  private readonly sent: Array<WorkItem.WorkItem> = []

  constructor(instanceId: string) {
    this.instanceId = instanceId
  }

  note({ cancelledActivities, executionId, historyDelta, orchestratorItems, workerItems }: Provider.Turn) {
    this.turns++
    if (executionId !== this.executionId) {
      this.activities.clear()
      this.children.clear()
    }
    this.executionId = executionId
    for (const item of workerItems) this.activities.set(item.id, item)
    for (const item of orchestratorItems) {
      if (item._tag === "StartOrchestration") this.children.set(item.parentId!, item)
    }
    for (const { activityId } of cancelledActivities) this.activities.delete(activityId)
    this.isOver ||= historyDelta.some(({ _tag }: Event.Event) =>
      _tag === "OrchestrationCompleted" || _tag === "OrchestrationFailed"
    )
  }

  /** Some of the messages that may arrive, and some that should not. */
  nextBatch(round: number): ReadonlyArray<WorkItem.WorkItem> {
    if (this.isOver || this.turns === 0) return []
    const { executionId, instanceId: instance } = this
    const dice = new Dice(hash(`${instance} ${executionId} ${round}`))
    const everything = round > 10
    const onlyOutcomes = everything ? round % 2 === 0 : dice.happens(0.4)
    const due: Array<WorkItem.WorkItem> = []
    for (const [id, { input }] of this.activities) {
      if (!everything && !dice.happens(0.4)) continue
      this.activities.delete(id)
      due.push(
        dice.happens(0.7)
          ? { _tag: "ActivityCompleted", instance, executionId, id, result: JSON.stringify(`done ${input}`) }
          : { _tag: "ActivityFailed", instance, executionId, id, details: refusal(`no ${input}`) }
      )
    }
    if (onlyOutcomes) {
      const batch = dice.shuffle(due)
      this.sent.push(...batch)
      return batch
    }
    for (const [parentId, { input }] of this.children) {
      if (!everything && !dice.happens(0.4)) continue
      this.children.delete(parentId)
      const parent = { parentInstance: instance, parentExecutionId: executionId, parentId }
      due.push(
        dice.happens(0.7)
          ? { _tag: "SubOrchCompleted", ...parent, result: JSON.stringify(`child did ${input}`) }
          : { _tag: "SubOrchFailed", ...parent, details: ErrorDetails.application("OrchestrationFailed", `"no child"`) }
      )
    }
    for (const name of ["A", "B", "C"]) {
      const data = JSON.stringify(`${name} ${round}`)
      if (everything || dice.happens(0.15)) due.push({ _tag: "ExternalRaised", instance, name, data })
      if (everything || dice.happens(0.15)) due.push({ _tag: "QueueMessage", instance, name, data })
    }
    if (this.sent.length > 0 && dice.happens(0.2)) due.push(dice.pick(this.sent))
    const batch = dice.shuffle(due)
    this.sent.push(...batch)
    return batch
  }
}

const isOutcome = (item: WorkItem.WorkItem): item is Outcome =>
  item._tag === "ActivityCompleted" || item._tag === "ActivityFailed"

/** What the handler fails with. */
const errorOf = ({ details }: WorkItem.Of<"ActivityFailed">) =>
  details._tag === "Application" ? JSON.parse(details.message) : details

const isForChild = (item: WorkItem.WorkItem) =>
  item._tag === "StartOrchestration" || item._tag === "CancelInstance" ||
  item._tag === "QueueMessage" && item.name === interruptSignal.name

const refusal = (message: string): Details.ErrorDetails =>
  ErrorDetails.application("ActivityFailed", JSON.stringify(message))

const hash = (text: string) => {
  let sum = 7
  for (let i = 0; i < text.length; i++) sum = (Math.imul(sum, 31) + text.charCodeAt(i)) | 0
  return sum
}
