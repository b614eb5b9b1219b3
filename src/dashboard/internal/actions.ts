/**
 * What the dashboard does. Each action leaves a row in the table of actions: who did what with which instance, and
 * whether it was done.
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import type * as Latch from "effect/Latch"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { randomUUID } from "node:crypto"
import * as Client from "../../Client.ts"
import { ours } from "../../model/shared/logging.ts"
import { shownTarget } from "../../model/shared/pauses.ts"
import type { PayloadMismatch, PayloadTooLarge } from "../../model/shared/payload.ts"
import { counted } from "../../model/shared/quantities.ts"
import { replaceUnstorable } from "../../model/shared/text.ts"
import { byOperator } from "../../operating/byOperator.ts"
import type { Refusal } from "../../operating/Refusal.ts"
import * as RetryPlan from "../../operating/retryPlan.ts"
import { findRunning } from "../../operating/running.ts"
import * as Orchestration from "../../Orchestration.ts"
import * as PgQueue from "../../prisma/PgQueue.ts"
import * as QueueReport from "../../prisma/shared/queueReport.ts"
import { Admin } from "../../provider/Admin.ts"
import type { Retried } from "../../provider/Admin.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { serversOfOrchestration } from "../../provider/shared/served.ts"
import type { QueueError } from "../../queue/QueueError.ts"
import type { ScheduleNotFound } from "../../schedules/Schedules.ts"
import { durationWords } from "../../schedules/shared/timingWords.ts"
import * as Signal from "../../Signal.ts"
import { Tasks } from "../../tasks/Tasks.ts"
import { Api, CurrentActor, Refused, Unavailable } from "../Api.ts"
import * as Bulk from "./bulk.ts"
import * as Failures from "./failures.ts"
import { check, versionOf } from "./knowledge.ts"
import type { Knowledge } from "./knowledge.ts"
import * as Limits from "./limits.ts"
import * as Requests from "./requests.ts"
import * as Schedules from "./scheduleActions.ts"
import * as Search from "./search.ts"
import * as Services from "./services.ts"
import { targetOf } from "./shapes.ts"

/** Opens `acted` after each action. */
export const layer = (knowledge: Knowledge, acted: Latch.Latch) =>
  HttpApiBuilder.group(
    Api,
    "operate",
    Effect.fnUntraced(function*(handlers) {
      const scope = yield* Effect.scope
      const services = yield* Services.ofLayer
      const record = (...[action, target, details, outcome]: Parameters<typeof addRow>) =>
        Effect.andThen(addRow(action, target, details, outcome), acted.open)

      /** Runs it, and records it, whether it is done or refused. `change` returns what happened, in a sentence. */
      const recorded = <A, R extends Services.Services | CurrentActor>(
        action: string,
        target: string,
        details: string | ((done: A) => string),
        change: Effect.Effect<A, Thrown, R>
      ) =>
        change.pipe(
          Effect.mapError(Failures.of),
          Effect.tap((done) => record(action, target, Predicate.isString(details) ? details : details(done), "done")),
          Effect.tapError((error) => record(action, target, withoutPayload(error), outcomeOf(error))),
          // What was begun is finished and recorded, even if the browser has gone.
          Effect.uninterruptible,
          Effect.provideContext(services)
        )
      const said = <R extends Services.Services | CurrentActor>(
        action: string,
        target: string,
        details: string | undefined,
        message: string,
        change: Effect.Effect<unknown, Thrown, R>
      ) => recorded(action, target, details ?? "", Effect.as(change, { message }))

      return handlers.handleAll({
        start: ({ payload: { delayMs, instanceId: given, orchestration: name, payload, startAtMs, version } }) => {
          const known = versionOf(knowledge, name, version)
          return Effect.gen(function*() {
            // As a start by code: the id that the definition makes lets no order run twice.
            const instanceId = given ??
              (yield* Effect.match(check(known, payload), {
                onFailure: () => undefined,
                onSuccess: (decoded) => known?.instanceId?.(decoded as never)
              })) ?? randomUUID()
            return yield* recorded(
              "start",
              instanceId,
              [version === undefined ? name : `${name}@${version}`, ...laterOf(startAtMs, delayMs)].join("; "),
              Effect.gen(function*() {
                yield* check(known, payload)
                const definition = yield* made(() =>
                  Orchestration.make(name, { version: version ?? "1.0.0", payload: Schema.Unknown })
                )
                const client = yield* Client.Client
                yield* client.start(definition, {
                  instanceId,
                  payload,
                  version: version === undefined ? "newest" : "own",
                  startAt: startAtMs,
                  delay: delayMs
                })
                const processes = yield* (yield* Admin).listProcesses
                const isServed = serversOfOrchestration(processes, name, version ?? null) > 0
                return {
                  instanceId,
                  message: [
                    `started ${instanceId}`,
                    ...laterOf(startAtMs, delayMs).map((when) => `it begins ${when}`),
                    ...isServed ? [] : [`no living process serves ${name}: it waits until one does`]
                  ].join("; ")
                }
              })
            )
          })
        },
        signal: ({ payload: { instanceId, name, payload } }) =>
          said(
            "signal",
            instanceId,
            name,
            `sent ${name} to ${instanceId}`,
            Effect.gen(function*() {
              yield* check(knowledge.signals.find((one) => one.name === name), payload)
              const signal = yield* made(() => Signal.make(name, { payload: Schema.Unknown }))
              yield* findRunning(instanceId)
              yield* (yield* Client.Client).send(signal, instanceId, payload)
            })
          ),
        request: ({ payload: { instanceId, name, payload, timeoutMs } }) => {
          const asked = (outcome: "done" | "refused" | "failed", problem?: string) =>
            record("request", instanceId, problem === undefined ? name : `${name}; ${problem}`, outcome)
          return Effect.gen(function*() {
            const { seesPayloads } = yield* CurrentActor
            yield* check(knowledge.requests.find((one) => one.name === name), payload)
            return yield* Requests.ask(
              { instanceId, name, payload, timeoutMs },
              knowledge.payloads === "show" && seesPayloads !== false
            )
          }).pipe(
            Effect.mapError(Failures.of),
            // It takes as long as the program likes, and a page that is closed does not wait for it.
            Effect.onExit(Exit.match({
              onSuccess: ({ outcome }) => asked("done", outcome === "Answered" ? undefined : outcome),
              onFailure: (cause) =>
                Option.match(Cause.findErrorOption(cause), {
                  onNone: () => asked("done", "left before it was answered"),
                  onSome: (error) => asked(outcomeOf(error), withoutPayload(error))
                })
            })),
            Effect.provideContext(services)
          )
        },
        interrupt: ({ payload: { deadlineMs, instanceId, reason = byOperator } }) =>
          said(
            "interrupt",
            instanceId,
            reason,
            `interrupted ${instanceId}: it cleans up, and then it is Cancelled`,
            Effect.andThen(
              findRunning(instanceId),
              Effect.flatMap(Client.Client, (client) => client.interrupt(instanceId, reason, { deadline: deadlineMs }))
            )
          ),
        terminate: ({ payload: { instanceId, reason = byOperator } }) =>
          said(
            "terminate",
            instanceId,
            reason,
            `terminated ${instanceId}: it is Cancelled at its next turn, without clean-up`,
            Effect.andThen(
              findRunning(instanceId),
              Effect.flatMap(Client.Client, (client) => client.terminate(instanceId, reason))
            )
          ),
        retry: ({ payload: { dryRun, from, instanceId, reason } }) => {
          const retried = Effect.flatMap(Admin, (admin) => admin.retry(instanceId, { from, reason }))
          /** What it has removed: whether the instance then continues is another matter. */
          const cutWords = ({ instances: [cut] }: Retried) =>
            shownParts({ "from event": cut?.from, "removed events": cut?.removed?.join(" to "), reason })
          return dryRun
            ? RetryPlan.planOne(instanceId, { from }).pipe(
              Effect.mapError(Failures.of),
              Effect.provideContext(services)
            )
            : recorded(
              "retry",
              instanceId,
              cutWords,
              Effect.map(retried, ({ instances }) => ({ instances, warnings: [] }))
            )
        },
        fork: ({ payload: { atEvent, instanceId, newId } }) =>
          said(
            "fork",
            instanceId,
            `at event ${atEvent} as ${newId}`,
            `${newId} continues from event ${atEvent} of ${instanceId}`,
            Effect.flatMap(Admin, (admin) => admin.fork(instanceId, { atEvent, newId }))
          ),
        redriveSignal: ({ payload: { event, execution, instanceId } }) =>
          said(
            "redrive",
            instanceId,
            `signal of event ${event}`,
            `sent the signal of event ${event} to ${instanceId} again`,
            Effect.flatMap(Client.Client, (client) => client.redrive(instanceId, { event, execution }))
          ),
        delete: ({ payload: { force, instanceId } }) =>
          recorded(
            "delete",
            instanceId,
            force ? "with force" : "",
            Effect.map(
              Effect.flatMap(Admin, (admin) => admin.deleteInstance(instanceId, { force })),
              ({ eventsDeleted, instancesDeleted }) => ({
                message: `deleted ${instanceId}: ${counted(instancesDeleted, "instance")}, ${
                  counted(eventsDeleted, "event")
                }`
              })
            )
          ),
        pause: ({ payload: { reason, target: given } }) =>
          Effect.flatMap(targetNamed(given), (target) =>
            said(
              "pause",
              shownTarget(target),
              reason,
              `paused ${shownTarget(target)}`,
              Effect.flatMap(Admin, (admin) => admin.pause(target, { reason }))
            )),
        resume: ({ payload: { target: given } }) =>
          Effect.flatMap(targetNamed(given), (target) =>
            said(
              "resume",
              shownTarget(target),
              undefined,
              `resumed ${shownTarget(target)}`,
              Effect.flatMap(
                Effect.flatMap(Admin, (admin) => admin.resume(target)),
                (wasPaused) =>
                  wasPaused ? Effect.void : Effect.fail(
                    new Refused({ code: "NotPaused", message: `there is no pause of ${shownTarget(target)}` })
                  )
              )
            )),
        bulk: ({ payload }) => {
          const { action, dryRun, reason } = payload
          const target = Search.shown(payload.search)
          const because = reason === undefined ? "" : `; ${reason}`
          return Effect.gen(function*() {
            const search = yield* Search.of(payload.search)
            const begin = yield* Bulk.make(payload, search, scope, ({ done, refused, stopped }) =>
              record(
                action,
                target,
                `${done} done, ${refused} refused${stopped === null ? "" : `; stopped: ${stopped}`}${because}`,
                stopped === null ? "done" : "failed"
              ))
            // It may end with this process, or with the database.
            if (!dryRun) yield* record(action, target, `begun${because}`, "done")
            return yield* begin
          }).pipe(
            Effect.mapError(Failures.of),
            Effect.tapError((error) => record(action, target, withoutPayload(error), outcomeOf(error))),
            Effect.provideContext(services)
          )
        },
        redriveTasks: ({ payload: { taskIds } }) =>
          recorded(
            "redrive tasks",
            taskIds.join(", "),
            "",
            Effect.map(
              Effect.flatMap(Tasks, (tasks) => tasks.redrive({ ids: taskIds })),
              (ids) => ({ message: `redriven ${counted(ids.length, "task")}` })
            )
          ),
        cancelTasks: ({ payload: { reason = byOperator, taskIds } }) =>
          recorded(
            "cancel tasks",
            taskIds.join(", "),
            reason,
            Effect.gen(function*() {
              const tasks = yield* Tasks
              let cancelled = 0
              yield* Effect.forEach(
                taskIds,
                (id) => Effect.map(tasks.cancel(id, reason), (isCancelled) => void (cancelled += isCancelled ? 1 : 0)),
                { concurrency: 8, discard: true }
              ).pipe(halfWay(() => `cancelled ${counted(cancelled, "task")}`))
              return { message: `cancelled ${counted(cancelled, "task")}` }
            })
          ),
        redriveMessages: ({ payload: { limit, queue } }) =>
          recorded(
            "redrive messages",
            queue,
            limit === undefined ? "" : `at most ${limit}`,
            Effect.map(redriveMessages(queue, limit ?? Infinity), (moved) => ({
              message: `redriven ${counted(moved, "message")} of ${queue}`
            }))
          ),
        runSchedule: ({ payload: { name } }) => recorded("run schedule", name, "", Schedules.runNow(name)),
        pauseSchedule: ({ payload: { name, reason } }) =>
          recorded("pause schedule", name, reason ?? "", Schedules.pause(name, reason)),
        resumeSchedule: ({ payload: { name } }) => recorded("resume schedule", name, "", Schedules.resume(name)),
        backfillSchedule: ({ payload: { dryRun, name, ...range } }) =>
          dryRun
            ? Schedules.countBackfill(name, range).pipe(Effect.mapError(Failures.of), Effect.provideContext(services))
            : recorded(
              "backfill schedule",
              name,
              `from ${new Date(range.fromMs).toISOString()} to ${new Date(range.toMs).toISOString()}`,
              Schedules.backfill(name, range)
            ),
        deleteSchedule: ({ payload: { name } }) => recorded("delete schedule", name, "", Schedules.remove(name)),
        setLimit: ({ payload: { bound, kind, name, scope } }) =>
          recorded(
            "set limit",
            Limits.named(kind, name, scope),
            Limits.shown(bound),
            Limits.set(kind, name, scope, bound)
          ),
        removeLimit: ({ payload: { kind, name, scope } }) =>
          recorded(
            "remove limit",
            Limits.named(kind, name, scope),
            scope === undefined ? "all" : "",
            Limits.remove(kind, name, scope)
          )
      })
    })
  )

// internal

type Thrown =
  | ProviderError
  | Client.InstanceAlreadyExists
  | PayloadMismatch
  | PayloadTooLarge
  | QueueError
  | ScheduleNotFound
  | Refusal
  | Failures.Failure

const outcomeOf = ({ _tag }: Failures.Failure) => _tag === "Unavailable" ? "failed" : "refused"

/** What does not match a Schema is named by its path, and a path may have keys of the payload. */
const withoutPayload = (error: Failures.Failure): string =>
  error._tag === "Refused" && error.code === "PayloadMismatch" ? "the payload does not match its schema" : error.message

/** An action that was done stays done if it cannot be recorded; the log says so. */
const addRow = Effect.fnUntraced(
  function*(action: string, target: string, details: string, outcome: "done" | "refused" | "failed") {
    const { name } = yield* CurrentActor
    yield* (yield* Admin).recordAction({
      actor: replaceUnstorable(name),
      action,
      target: replaceUnstorable(target),
      details: replaceUnstorable(details),
      outcome
    })
  },
  (recording, action, _target, _details, outcome) =>
    Effect.catch(recording, ({ reason }) =>
      Effect.logWarning("Dashboard: an action is not in the audit log").pipe(
        ours({ action, outcome, error_type: reason._tag, error: reason.message })
      ))
)

/** Names and versions are checked when a definition is made. */
const made = <A>(make: () => A): Effect.Effect<A, Refused> =>
  Effect.try({
    try: make,
    catch: (thrown) => new Refused({ code: "InvalidInput", message: (thrown as Error).message })
  })

const targetNamed = (given: Parameters<typeof targetOf>[0]) => {
  const target = targetOf(given)
  return typeof target === "string"
    ? Effect.fail(new Refused({ code: "InvalidInput", message: target }))
    : Effect.succeed(target)
}

/** When a start begins, if not at once. */
const laterOf = (startAtMs: number | undefined, delayMs: number | undefined): ReadonlyArray<string> => [
  ...(startAtMs === undefined ? [] : [`at ${new Date(startAtMs).toISOString()}`]),
  ...(delayMs === undefined ? [] : [`in ${durationWords(delayMs)}`])
]

const shownParts = (parts: { readonly [name: string]: string | number | undefined }): string =>
  Object.entries(parts).flatMap(([name, value]) => value === undefined ? [] : [`${name}: ${value}`]).join("; ")

/** What stops half way says how far it came. */
const halfWay = (soFar: () => string) =>
  Effect.mapError((error: ProviderError | QueueError) => {
    const { message } = Failures.of(error)
    return new Unavailable({ message: `${soFar()}, then: ${message}` })
  })

/** Messages that one statement takes. */
const mostAtOnce = 500

/** What dies again meanwhile is not taken again. */
const redriveMessages = Effect.fnUntraced(function*(name: string, limit: number) {
  const queue = yield* PgQueue.make({ queues: { [name]: {} } })
  const most = Math.min(limit, yield* QueueReport.countDead(name))
  let done = 0
  let moved: number
  do {
    moved = yield* queue.redrive(name, { limit: Math.min(mostAtOnce, most - done) }).pipe(
      halfWay(() => `redriven ${counted(done, "message")}`)
    )
    done += moved
  } while (moved > 0 && done < most)
  return done
}, Effect.scoped)
