/**
 * Replays running instances with the programs of a module, page by page, and counts what it finds. Only reads.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Stream from "effect/Stream"
import * as Event from "../../model/Event.ts"
import { count, counted } from "../../model/shared/quantities.ts"
import * as retrySignal from "../../model/shared/retrySignal.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import type { Database } from "../../prisma/Database.ts"
import { readReplayable, readRunning } from "../../prisma/shared/runningInstances.ts"
import type { Replayable, RunningInstance } from "../../prisma/shared/runningInstances.ts"
import { Admin, stream } from "../../provider/Admin.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import * as historyDiff from "../../replay/historyDiff.ts"
import * as trial from "../../replay/trial.ts"
import { CommandError } from "./failure.ts"
import * as Findings from "./findings.ts"
import type { Programs } from "./programs.ts"
import * as Progress from "./Progress.ts"
import * as Sample from "./sample.ts"
import * as Store from "./store.ts"
import { oneLine } from "./table.ts"

export interface Options {
  /** Only this orchestration, or only this instance. */
  readonly name: string | undefined
  readonly instanceId: string | undefined
  /** Most instances of each definition to replay. */
  readonly sample: number | undefined
  /** Whether the lines of a finding have payloads. */
  readonly payloads: boolean
}

export interface Report {
  /** Instances that were listed. */
  readonly running: number
  readonly replayed: number
  /** Listed instances that no turn has begun, so that they have nothing to replay. */
  readonly notBegun: number
  /** Replayed instances that fit and are blocked at this moment: by other code, or by a message in their queue. */
  readonly fitBlocked: number
  readonly findings: Findings.Findings
  readonly unserved: ReadonlyArray<Unserved>
}

/** Instances that no program of the module runs. */
export interface Unserved {
  readonly orchestration: string
  readonly version: string
  readonly instances: number
}

export const run = Effect.fnUntraced(function*(programs: Programs, options: Options) {
  const progress = yield* Progress.make
  const tally = { running: 0, replayed: 0, notBegun: 0, fitBlocked: 0 }
  const findings = Findings.make()
  const unserved = new Map<string, Unserved>()
  const addUnserved = (orchestration: string, version: string) => {
    const key = `${orchestration} ${version}`
    const instances = (unserved.get(key)?.instances ?? 0) + 1
    unserved.set(key, { orchestration, version, instances })
  }

  /** Counts a listed instance. Returns whether to replay it. */
  const select = ({ orchestrationName, orchestrationVersion }: RunningInstance): boolean => {
    tally.running++
    if (orchestrationVersion === null) tally.notBegun++
    else if (programs.find(orchestrationName, orchestrationVersion) === undefined) {
      addUnserved(orchestrationName, orchestrationVersion)
    } else return true
    return false
  }

  const replay = (instance: RunningInstance, stored: Replayable): void => {
    const { instanceId, isBlocked, orchestrationName: orchestration } = instance
    const place = { instanceId, executionId: stored.executionId, eventId: null }
    const read = Result.all(stored.history.map(Event.decode))
    if (Result.isFailure(read)) {
      tally.replayed++
      const { problem } = read.failure
      const version = instance.orchestrationVersion!
      return findings.add(
        { orchestration, version, outcome: "block", reason: "DataUnreadable", problem, isBlocked, place },
        () => ({ diff: [], defect: null })
      )
    }
    const events = read.success
    if (!hasBegun(events)) return void tally.notBegun++
    // It may run another version since it was listed.
    const { version } = events[0]
    const program = programs.find(orchestration, version)
    if (program === undefined) return addUnserved(orchestration, version)
    tally.replayed++
    const refusal = trial.refusalOf(program.code, events, valuesOf(stored), retriesOf(stored))
    if (refusal === undefined) return void (isBlocked && tally.fitBlocked++)
    const { defect, difference, eventId, outcome, problem, reason } = refusal
    findings.add(
      { orchestration, version, outcome, reason, problem, isBlocked, place: { ...place, eventId } },
      () => ({
        diff: historyDiff.lines(difference, options).map(oneLine),
        defect: options.payloads ? defect ?? null : null
      })
    )
  }

  const served = Stream.filter(runningInstances(options), select)
  const chosen = options.sample === undefined ? served : sampled(served, options.sample)
  yield* Stream.runForEach(
    Stream.mapEffect(
      chosen,
      (instance) =>
        readReplayable(instance.instanceId).pipe(
          Effect.flatMap(Option.match({
            onNone: () => Effect.succeedNone,
            onSome: (stored) => Effect.asSome(Store.shown(stored))
          })),
          Effect.map((stored) => [instance, stored] as const)
        ),
      { concurrency }
    ),
    ([instance, stored]) => {
      // One that has ended since it was listed continues nowhere.
      if (Option.isSome(stored) && stored.value.isRunning) replay(instance, stored.value)
      const { block, fail } = findings.counts()
      return progress.report(`${count(tally.replayed)} replayed, ${count(block + fail)} do not fit`, {
        replayed: tally.replayed,
        wouldBlock: block,
        wouldFail: fail
      })
    }
  )
  return { ...tally, findings, unserved: [...unserved.values()].sort((a, b) => b.instances - a.instances) }
})

/** The answer in one line. */
export const summaryOf = (
  { findings, fitBlocked, notBegun, replayed, running, unserved }: Report,
  isSample: boolean
): string => {
  if (running === 0) return "no running instances"
  const { block, fail } = findings.counts()
  const notServed = unserved.reduce((sum, { instances }) => sum + instances, 0)
  return [
    `${counted(running, "running instance")}: ${count(replayed)} replayed${isSample ? " (a sample)" : ""}`,
    counted(replayed - block - fail, "fits", "fit") + (fitBlocked === 0 ? "" : ` (${count(fitBlocked)} blocked now)`),
    `${count(block)} would block`,
    ...(fail === 0 ? [] : [`${count(fail)} would fail`]),
    ...(notBegun === 0 ? [] : [`${count(notBegun)} not begun`]),
    ...(notServed === 0 ? [] : [`${count(notServed)} not served`])
  ].join(", ")
}

// internal

/** Histories that are read at the same time. Replays use the one processor of the process. */
const concurrency = 4

/** Instances of a page. */
const pageSize = 1_000

/** The running instances that the options select, newest first, page by page. */
const runningInstances = (
  { instanceId, name }: Options
): Stream.Stream<RunningInstance, ProviderError | CommandError, Admin | Database> =>
  instanceId === undefined
    ? stream({ status: "Running", name }).pipe(
      Stream.map(({ instanceId }) => instanceId),
      Stream.grouped(pageSize),
      Stream.flatMap((ids) => Stream.fromIterableEffect(readRunning(ids)))
    )
    : Stream.fromIterableEffect(oneInstance(instanceId))

const oneInstance = Effect.fnUntraced(function*(instanceId: string) {
  const { status } = yield* (yield* Admin).getInstanceInfo(instanceId)
  if (status === "Running") return yield* readRunning([instanceId])
  return yield* new CommandError({
    code: "InstanceEnded",
    message: `instance ${instanceId} has ended: no code has to continue it`,
    exit: "no"
  })
})

/** Looks at all instances first, and keeps some. */
const sampled = <E, R>(instances: Stream.Stream<RunningInstance, E, R>, size: number) =>
  Stream.unwrap(Effect.gen(function*() {
    const sample = Sample.make<RunningInstance>(size)
    yield* Stream.runForEach(
      instances,
      (instance) =>
        Effect.sync(() => sample.add(`${instance.orchestrationName} ${instance.orchestrationVersion}`, instance))
    )
    return Stream.fromIterable(sample.chosen())
  }))

type Begun = readonly [Event.Of<"OrchestrationStarted">, ...ReadonlyArray<Event.Event>]

const hasBegun = (events: ReadonlyArray<Event.Event>): events is Begun => events[0]?._tag === "OrchestrationStarted"

const valuesOf = ({ keyValues }: Replayable) =>
  new Map(keyValues.map(({ key, lastUpdatedAtMs, value }) => [key, { value, lastUpdatedAtMs }]))

const retriesOf = ({ retries }: Replayable): ReadonlyArray<WorkItem.WorkItem> =>
  retries.flatMap((text) => {
    const message = Result.getOrUndefined(WorkItem.decode(text))
    return message?._tag === "QueueMessage" && message.name === retrySignal.name ? [message] : []
  })
