/**
 * Schedules over plain data and `Clock`: for tests in virtual time, and as the contract's second statement.
 *
 * It starts orchestrations with the `Provider` in the context, such as that of `MemoryDriver`, and tasks with
 * `TestTasks`. One call runs at a time, so it needs no locks.
 *
 * @since 0.3.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Semaphore from "effect/Semaphore"
import * as interruptSignal from "../model/shared/interruptSignal.ts"
import { Provider } from "../provider/Provider.ts"
import { InvalidInput, ProviderError } from "../provider/ProviderError.ts"
import { endOf } from "../provider/shared/endOf.ts"
import { TaskStore } from "../tasks/shared/taskStore.ts"
import * as topics from "../waking/Topics.ts"
import { ScheduleDriver } from "./ScheduleDriver.ts"
import type { Fire, NewSchedule, QueuedRun, Request, StoredRun } from "./ScheduleDriver.ts"

/**
 * Schedules in memory. They outlive the driver that uses them.
 *
 * @category models
 * @since 0.3.0
 */
export interface Store {
  /** @internal */
  readonly rows: Map<string, Row>
  /** @internal */
  readonly one: Semaphore.Semaphore
}

interface Row extends NewSchedule {
  revision: number
  readonly createdMs: number
  updatedMs: number
  firedUntilMs: number
  lookMs: number | null
  pause: { readonly atMs: number; readonly reason: string | null } | null
  queued: QueuedRun | null
  requests: ReadonlyArray<Request>
  /** Ids of all runs by hand. */
  readonly asked: Set<string>
  runCount: number
  lastInstanceId: string | null
  lastTaskId: string | null
  runs: ReadonlyArray<StoredRun>
}

/**
 * An empty store.
 *
 * @category constructors
 * @since 0.3.0
 */
export const makeStore = (): Store => ({ rows: new Map(), one: Semaphore.makeUnsafe(1) })

/**
 * The driver over a store, by default an empty one. Tasks start if there is a `TestTasks` in the context.
 *
 * @category constructors
 * @since 0.3.0
 */
export const make = Effect.fnUntraced(function*(
  store: Store = makeStore()
): Effect.fn.Return<ScheduleDriver["Service"], never, Provider> {
  const provider = yield* Provider
  const tasks = yield* Effect.serviceOption(TaskStore)
  const { one, rows } = store

  const call = <A>(body: (nowMs: number) => Effect.Effect<A, ProviderError>) =>
    one.withPermit(Effect.flatMap(Clock.currentTimeMillis, body))

  const isRunning = ({ lastInstanceId, lastTaskId }: Row): Effect.Effect<boolean, ProviderError> =>
    lastInstanceId !== null
      ? Effect.map(
        provider.readInstance(lastInstanceId),
        (state) => Option.isSome(state) && endOf(state.value) === undefined
      )
      : lastTaskId === null || Option.isNone(tasks)
      ? Effect.succeed(false)
      : Effect.map(
        tasks.value.readTask(lastTaskId),
        (state) => state !== null && (state.status === "Pending" || state.status === "Running")
      )

  const change = (row: Row, changes: Partial<Row>) =>
    void Object.assign(row, { ...changes, revision: row.revision + 1 })

  const startAll = Effect.fnUntraced(function*({ runs }: Fire) {
    const started = new Map<number, { readonly instanceId: string | null; readonly taskId: string | null }>()
    for (const { number, start } of runs) {
      if (start === null) continue
      if (start._tag === "Orchestration") {
        yield* provider.startOrchestration({ ...start, delay: Option.none() })
        started.set(number, { instanceId: start.start.instance, taskId: null })
      } else {
        const [created] = yield* (yield* tasksOf(tasks)).create([start.task])
        started.set(number, { instanceId: null, taskId: created!.id })
      }
    }
    return started
  })

  const interrupt = ({ instanceId, reason, taskId }: NonNullable<Fire["interrupts"]>) =>
    instanceId !== null
      ? provider.enqueueForOrchestrator({
        message: {
          _tag: "QueueMessage",
          instance: instanceId,
          name: interruptSignal.name,
          data: interruptSignal.encode(reason)
        },
        delay: Option.none()
      })
      : Option.isNone(tasks) || taskId === null
      ? Effect.void
      : tasks.value.cancel([taskId], reason, true)

  const fire = Effect.fnUntraced(function*(fire: Fire, nowMs: number) {
    const row = rows.get(fire.name)
    if (row === undefined || row.revision !== fire.revision) return false
    const started = yield* startAll(fire)
    if (fire.interrupts !== null) yield* interrupt(fire.interrupts)
    const settled = fire.runs.map(({ kind, missedSinceMs, note, number, occurrenceMs, outcome }): StoredRun => ({
      number,
      kind,
      occurrenceMs,
      missedSinceMs,
      outcome,
      note,
      ...(started.get(number) ?? { instanceId: null, taskId: null }),
      settledMs: nowMs
    }))
    const numbers = new Set(settled.map(({ number }) => number))
    const { firedUntilMs, last, lookMs, queued, requests, runCount } = fire
    change(row, {
      firedUntilMs,
      lookMs,
      queued,
      requests,
      runCount,
      runs: [...row.runs.filter(({ number }) => !numbers.has(number)), ...settled]
        .sort((a, b) => b.number - a.number)
        .filter(({ number }) => number > runCount - keptRuns)
    })
    if (last !== null) {
      const { instanceId, taskId } = started.get(last)!
      row.lastInstanceId = instanceId
      row.lastTaskId = taskId
    }
    return true
  })

  return ScheduleDriver.of({
    store: (schedules, replaces) =>
      call((nowMs) =>
        Effect.sync(() =>
          schedules.map((schedule) => {
            const row = rows.get(schedule.name)
            if (row === undefined) {
              rows.set(schedule.name, newRow(schedule, nowMs))
              return "Created"
            }
            if (isSame(row, schedule)) return "Unchanged"
            if (!replaces) return "Exists"
            const isSameTiming = JSON.stringify(row.definition.timing) === JSON.stringify(schedule.definition.timing)
            change(row, {
              ...schedule,
              updatedMs: nowMs,
              lookMs: nowMs,
              firedUntilMs: isSameTiming ? row.firedUntilMs : Math.max(row.firedUntilMs, nowMs)
            })
            return "Replaced"
          })
        )
      ),

    delete: (name) => call(() => Effect.sync(() => rows.delete(name))),

    pause: (name, pause) =>
      call((nowMs) =>
        Effect.sync(() => {
          const row = rows.get(name)
          if (row === undefined) return "Missing"
          if ((row.pause === null) === (pause === null)) return "Unchanged"
          change(
            row,
            pause === null
              ? { pause, firedUntilMs: Math.max(row.firedUntilMs, nowMs), lookMs: nowMs }
              : { pause: { atMs: nowMs, ...pause }, lookMs: row.requests.length > 0 ? nowMs : null }
          )
          return "Done"
        })
      ),

    request: (name, request) =>
      call((nowMs) =>
        Effect.sync(() => {
          const row = rows.get(name)
          if (row === undefined) return "Missing"
          // The answer to the first call was lost.
          if (request.kind === "Manual" && row.asked.has(request.id)) return "Done"
          if (row.requests.length >= mostRequests) return "Full"
          if (request.kind === "Manual") row.asked.add(request.id)
          change(row, { requests: [...row.requests, { ...request, atMs: nowMs }], lookMs: nowMs })
          return "Done"
        })
      ),

    claim: ({ codes, holdMs, limit }) =>
      call(Effect.fnUntraced(function*(nowMs) {
        const served = [...rows.values()].filter(({ code }) => code === null || codes.includes(code))
        const waiting: Array<Row> = []
        const due: Array<Row> = []
        for (const row of served.toSorted((a, b) => (a.lookMs ?? 0) - (b.lookMs ?? 0))) {
          const mayStart = row.queued !== null && (row.pause === null || row.queued.kind === "Manual")
          const isWaiting = mayStart && (yield* isRunning(row))
          if (isWaiting) waiting.push(row)
          const isFreed = mayStart && !isWaiting
          if (row.lookMs !== null && row.lookMs <= nowMs || isFreed) due.push(row)
        }
        const claimed = due.slice(0, limit)
        const later = served.filter((row) => !claimed.includes(row)).flatMap(({ lookMs }) => lookMs ?? [])
        const nextMs = Math.min(...later.map((ms) => ms <= nowMs ? nowMs + holdMs : ms))
        for (const row of claimed) row.lookMs = nowMs + holdMs
        return {
          nowMs,
          nextMs: nextMs === Infinity ? null : nextMs,
          isFull: claimed.length >= limit,
          schedules: yield* Effect.forEach(claimed, (row) =>
            Effect.map(isRunning(row), (isRunning) => ({ ...row, isPaused: row.pause !== null, isRunning }))),
          waiting: waiting.map(({ lastInstanceId, lastTaskId, name }) => ({
            name,
            instanceId: lastInstanceId,
            taskId: lastTaskId
          }))
        }
      })),

    fire: (fires) => call((nowMs) => Effect.forEach(fires, (one) => fire(one, nowMs))),

    list: ({ after, limit, name }) =>
      call((nowMs) =>
        Effect.map(
          Effect.forEach(
            [...rows.values()]
              .filter((row) => (name === null || row.name === name) && (after === null || row.name > after))
              .sort((a, b) => a.name < b.name ? -1 : 1)
              .slice(0, limit),
            (row) =>
              Effect.map(isRunning(row), (isRunning) => ({
                ...row,
                hasPayload: row.payload !== null,
                payload: name === null ? null : row.payload,
                pausedMs: row.pause?.atMs ?? null,
                pauseReason: row.pause?.reason ?? null,
                requests: row.requests.length,
                isRunning,
                lastRun: row.runs[0] ?? null
              }))
          ),
          (schedules) => ({ nowMs, schedules })
        )
      ),

    runs: (name, limit) => call(() => Effect.sync(() => (rows.get(name)?.runs ?? []).slice(0, limit)))
  })
})

/**
 * The driver, and hints within the process.
 *
 * @category layers
 * @since 0.3.0
 */
export const layer = (store?: Store): Layer.Layer<ScheduleDriver | topics.Topics, never, Provider> =>
  Layer.effectContext(Effect.gen(function*() {
    return Context.make(ScheduleDriver, yield* make(store)).pipe(
      Context.add(topics.Topics, yield* topics.make(noOthers))
    )
  }))

// internal

const keptRuns = 100

const mostRequests = 100

/** No other process exists whose hints could be lost. */
const noOthers: Parameters<typeof topics.make>[0] = {
  name: "in-process",
  announce: () => Effect.void,
  listen: ({ connected }) => Effect.sync(connected)
}

const newRow = (schedule: NewSchedule, nowMs: number): Row => ({
  ...schedule,
  // What was decided about an earlier one of the name does not fit.
  revision: Math.floor(Math.random() * 2 ** 52),
  createdMs: nowMs,
  updatedMs: nowMs,
  firedUntilMs: nowMs,
  lookMs: nowMs,
  pause: null,
  queued: null,
  requests: [],
  asked: new Set(),
  runCount: 0,
  lastInstanceId: null,
  lastTaskId: null,
  runs: []
})

const isSame = (a: NewSchedule, b: NewSchedule) =>
  a.code === b.code && a.payload === b.payload && JSON.stringify(a.definition) === JSON.stringify(b.definition)

const tasksOf = (tasks: Option.Option<TaskStore["Service"]>) =>
  Option.match(tasks, {
    onSome: Effect.succeed,
    onNone: () =>
      Effect.fail(
        new ProviderError({
          operation: "fireSchedules",
          reason: new InvalidInput({
            field: "start",
            problem: "it is a task, and there is no TestTasks beside the schedules"
          })
        })
      )
  })
