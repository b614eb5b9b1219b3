/**
 * Lets virtual time pass until something has happened, or says why it cannot happen.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Client from "../../Client.ts"
import type * as Event from "../../model/Event.ts"
import type * as WorkItem from "../../model/WorkItem.ts"
import * as tables from "../../provider/memory/tables.ts"
import type { Provider } from "../../provider/Provider.ts"
import type { ProviderDriver } from "../../provider/ProviderDriver.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import * as progress from "../../provider/shared/progress.ts"
import { isNews } from "../../provider/shared/readStream.ts"
import type { TestProcess } from "./testProcess.ts"
import * as virtualTime from "./virtualTime.ts"
import { describeWaits } from "./waits.ts"

export interface Options {
  readonly time: virtualTime.VirtualTime
  readonly store: tables.Tables
  readonly readProgress: ProviderDriver["Service"]["readProgress"]
  readonly readPage: Provider["Service"]["readStream"]
  /** Reads the events of all executions of an instance. */
  readonly history: (instanceId: string) => Effect.Effect<ReadonlyArray<Event.Event>, ProviderError>
  /** By lock token. */
  readonly claimed: ReadonlyMap<string, WorkItem.Of<"ActivityExecute">>
  readonly handlers: TestProcess["handlers"]
  readonly unserved: TestProcess["unserved"]
  /** Longest wait in real time for what the clock cannot bring about. */
  readonly patienceMs: number
  /** The defect of a test that waits for something that will never happen. */
  readonly stuck: (problem: string) => unknown
}

export const make = (
  { claimed, handlers, history, patienceMs, readPage, readProgress, store, stuck, time, unserved }: Options
) => {
  /** Waits, in real time, until a fiber runs; dies of `problem` when none does. */
  const untilProgress = (problem: Effect.Effect<string>) =>
    Effect.gen(function*() {
      const before = time.progress()
      const begun = virtualTime.realTime()
      while (time.progress() === before) {
        if (virtualTime.realTime() - begun > patienceMs) {
          return yield* Effect.die(stuck(yield* problem))
        }
        yield* virtualTime.realPause
      }
    })

  /**
   * A handler that runs and does not sleep. An activity that was cancelled has no row, so time does not wait for it.
   */
  const awakeHandler = () => {
    const activity = [...store.activities.values()].flatMap(({ lock }) => claimed.get(lock?.token ?? "") ?? [])
      .find(({ executionId, id, instance }) => !time.isAsleep(virtualTime.activityKey(instance, executionId, id)))
    return activity === undefined
      ? [...handlers].find(([key]) => !time.isAsleep(key))?.[1]
      : `activity "${activity.name}" of instance ${activity.instance}`
  }

  /** Until no handler runs that may be about to answer. */
  const handlersReady: Effect.Effect<void> = Effect.gen(function*() {
    for (let awake = awakeHandler(); awake !== undefined; awake = awakeHandler()) {
      yield* untilProgress(Effect.succeed(
        `${awake} neither ends nor sleeps, and time waits for it. ` +
          "A handler that is never to answer is Effect.sleep(Duration.infinity); one that calls a real service may " +
          "need more patience"
      ))
      yield* time.rest
    }
  })

  const hasEnded = (instanceId: string) => {
    const status = tables.stateOf(store, instanceId)?.status
    return status === "Completed" || status === "Failed"
  }

  /** Lets time pass; false if the deadline came first. */
  const untilDone = Effect.fnUntraced(function*({ deadline = Infinity, isDone, problem }: {
    readonly isDone: () => boolean
    readonly problem: Effect.Effect<string>
    readonly deadline?: number
  }) {
    while (true) {
      const stepped = yield* time.step({ limitMs: deadline, isDone })
      if (stepped === "Done") return true
      if (stepped === "Moved") continue
      if (deadline === Infinity) {
        yield* untilProgress(problem)
        continue
      }
      yield* time.moveTo(deadline)
      return false
    }
  })

  const untilEnded = Effect.fnUntraced(function*(instanceId: string, { timeout }: Client.WaitOptions = {}) {
    const timeoutMs = timeout === undefined ? Infinity : Duration.toMillis(Duration.fromInputUnsafe(timeout))
    const hasCome = yield* untilDone({
      isDone: () => hasEnded(instanceId),
      problem: Effect.orDie(nothingDue(instanceId)),
      deadline: time.now() + timeoutMs
    })
    if (!hasCome) return yield* new Client.WaitTimeout({ instanceId, timeoutMs })
  })

  /** Lets time pass until the answer is there. */
  const awaitProgress: Provider["Service"]["awaitProgress"] = Effect.fnUntraced(
    function*({ instanceId, key = null, timeout, until }) {
      const answer = progress.answer(until)
      const deadline = time.now() + (timeout === undefined ? Infinity : Duration.toMillis(timeout))
      const look = Effect.map(
        readProgress([{ instanceId, key, executionId: 0, lastEventId: 0 }]),
        ([state]) => answer(state ?? progress.unknown)
      )
      while (true) {
        yield* time.rest
        const found = yield* look
        if (Option.isSome(found)) return found.value
        if ((yield* time.step({ limitMs: deadline })) === "Moved") continue
        // Another fiber of the test may have done something before the step came to rest.
        const late = yield* look
        if (Option.isSome(late)) return late.value
        if (deadline === Infinity) {
          yield* untilProgress(Effect.orDie(nothingDue(instanceId)))
          continue
        }
        yield* time.moveTo(deadline)
        return { _tag: "TimedOut" }
      }
    }
  )

  /** Lets time pass until the page has news. */
  const readStream: Provider["Service"]["readStream"] = Effect.fnUntraced(function*(asked) {
    while (true) {
      yield* time.rest
      const page = yield* readPage({ ...asked, waits: false })
      if (!asked.waits || isNews(page, asked)) return page
      if ((yield* time.step({ limitMs: Infinity })) === "Moved") continue
      yield* untilProgress(Effect.orDie(nothingDue(asked.instanceId)))
    }
  })

  const nothingDue = (instanceId: string) =>
    Effect.map(history(instanceId), (events) => {
      const problem = events.length > 0
        ? `waits for ${describeWaits(events)}, and nothing is due that could end this`
        : store.instances.has(instanceId)
        ? "has not begun"
        : "does not exist, and nothing is due that could start it"
      const missing = [...unservedWork(), ...unserved]
      return `instance ${instanceId} ${problem}. ${
        missing.length === 0
          ? "Send what it needs before you wait for it"
          : `No runtime serves ${missing.join(", ")}: serve it in the layer of the test`
      }`
    })

  /** The names of work that is due and not claimed, although all is at rest. */
  const unservedWork = () => {
    const isLeft = ({ lock, visibleAtMs }: tables.Queued) =>
      visibleAtMs <= time.now() && (lock === null || lock.untilMs <= time.now())
    const instances = [...store.messages.values()].filter(isLeft).flatMap((message) => {
      const instance = store.instances.get(message.instanceId)
      if (instance === undefined) return []
      return instance.asksFor === null ? instance.name : `${instance.name}@${instance.asksFor}`
    })
    const activities = [...store.activities.values()].filter(isLeft)
      .map(({ name, tag }) => `activity "${name}"${tag === null ? "" : ` with the tag "${tag}"`}`)
    return [...new Set([...instances, ...activities])]
  }

  return { awaitProgress, handlersReady, readStream, untilDone, untilEnded }
}
