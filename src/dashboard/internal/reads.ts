/**
 * What the dashboard reads.
 */
import * as Cache from "effect/Cache"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import type * as Latch from "effect/Latch"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { Ledger } from "../../model/shared/ledger.ts"
import * as InstanceDetail from "../../operating/instanceDetail.ts"
import * as Reasons from "../../operating/reasons.ts"
import { summaryOf } from "../../operating/tasks.ts"
import { Database } from "../../prisma/Database.ts"
import * as QueueReport from "../../prisma/shared/queueReport.ts"
import * as RetryReport from "../../prisma/shared/retryReport.ts"
import * as TaskReport from "../../prisma/shared/taskReport.ts"
import { Admin } from "../../provider/Admin.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { ScheduleNotFound } from "../../schedules/Schedules.ts"
import { Api, CurrentActor, Unavailable } from "../Api.ts"
import type * as Model from "../Api.ts"
import * as Definitions from "./definitions.ts"
import * as Failures from "./failures.ts"
import * as History from "./history.ts"
import { formOf } from "./knowledge.ts"
import type { Knowledge } from "./knowledge.ts"
import * as Limits from "./limits.ts"
import { storeNowMs } from "./now.ts"
import * as Overview from "./overview.ts"
import * as Progress from "./progress.ts"
import * as Requests from "./requests.ts"
import * as Schedules from "./schedules.ts"
import * as Search from "./search.ts"
import * as Services from "./services.ts"
import * as Shapes from "./shapes.ts"
import * as Streams from "./streams.ts"
import * as Watch from "./watch.ts"

export const layer = (knowledge: Knowledge, acted: Latch.Latch) =>
  HttpApiBuilder.group(
    Api,
    "read",
    Effect.fnUntraced(function*(handlers) {
      const services = yield* Services.ofLayer
      const past = Overview.makePast()
      const overview = yield* Streams.shareOne<typeof Model.Overview.Type>((publish) =>
        Effect.provideContext(Overview.watch(past, acted, publish), services)
      )
      const instances = yield* Streams.share((id: string, publish: (state: Watch.Seen) => Effect.Effect<void>) =>
        Effect.provideContext(Watch.instance(id, publish), services)
      )
      const statuses = yield* Schedules.makeStatuses
      const schedules = yield* Streams.share((name: string, publish: (detail: LiveSchedule) => Effect.Effect<void>) =>
        Effect.provideContext(
          Watch.changes(
            Effect.catchTag(Schedules.detail(statuses, name), "ScheduleNotFound", () => Effect.succeed(null)),
            // Not its time, which always differs.
            (detail) => JSON.stringify({ ...detail, nowMs: 0 }),
            publish
          ),
          services
        )
      )
      const streams = yield* Streams.share((
        id: string,
        publish: (streams: ReadonlyArray<typeof Model.ProgressStream.Type>) => Effect.Effect<void>
      ) => Effect.provideContext(Watch.changes(Progress.list(id), JSON.stringify, publish, "500 millis"), services))
      // Looking at a hundred instances costs hundreds of reads: those who ask for the same share them.
      const reasons = yield* Cache.make({
        capacity: 100,
        timeToLive: "5 seconds",
        lookup: (asked: string) => Effect.provideContext(explainMany(JSON.parse(asked) as Asked), services)
      })
      const limited = Streams.limited(knowledge.maxStreams)
      const stored = <A, R>(read: Effect.Effect<A, ProviderError | ScheduleNotFound | Failures.Failure, R>) =>
        read.pipe(Effect.mapError(Failures.of), Effect.provideContext(services))
      const seesPayloads = Effect.map(
        CurrentActor,
        (actor) => knowledge.payloads === "show" && actor.seesPayloads !== false
      )
      const session = {
        packageVersion: knowledge.packageVersion,
        orchestrations: knowledge.orchestrations.map((one) => ({
          name: one.name,
          version: one.version,
          payload: formOf(one)
        })),
        signals: knowledge.signals.map((one) => ({ name: one.name, payload: formOf(one) })),
        requests: knowledge.requests.map((one) => ({ name: one.name, payload: formOf(one) })),
        metricsUrl: knowledge.metricsUrl
      }

      return handlers.handleAll({
        session: () =>
          stored(Effect.gen(function*() {
            const { name, role } = yield* CurrentActor
            const { address, schema } = yield* Database
            return { ...session, actor: name, role, seesPayloads: yield* seesPayloads, address, schema }
          })),
        overview: () =>
          Stream.runHead(overview).pipe(
            Effect.timeoutOption(longestLook),
            Effect.map(Option.flatten),
            Effect.flatMap(Option.match({
              onNone: () => Effect.fail(past.failure ?? new Unavailable({ message: "the store did not answer" })),
              onSome: Effect.succeed
            }))
          ),
        live: () => limited(overview),
        instances: ({ query: { cursor, limit, orderBy, ...search } }) =>
          stored(Effect.gen(function*() {
            const sees = yield* seesPayloads
            const admin = yield* Admin
            const page = yield* admin.list({ ...yield* Search.of(search), cursor, limit, orderBy })
            const retries: ReadonlyMap<string, RetryReport.Retry> = search.retrying === "true"
              ? yield* RetryReport.read(page.instances.map(({ instanceId }) => instanceId))
              : new Map()
            return {
              instances: page.instances.map((one) =>
                Shapes.instance(one, { isListed: true, retry: retries.get(one.instanceId), seesPayloads: sees })
              ),
              next: page.next
            }
          })),
        reasons: ({ query: { limit = mostExplained, ...search } }) =>
          stored(Cache.get(reasons, JSON.stringify({ search, limit } satisfies Asked))),
        instance: ({ query: { id } }) =>
          stored(Effect.flatMap(seesPayloads, (seesPayloads) => detailOf(id, seesPayloads))),
        instanceLive: ({ query: { id } }) =>
          stored(Effect.gen(function*() {
            const sees = yield* seesPayloads
            return yield* limited(
              Stream.map(
                instances(id),
                (state) => state === null ? null : Shapes.instance(state, { isListed: false, seesPayloads: sees })
              )
            )
          })),
        history: ({ query: { after = 0, execution, id, limit = eventsOfPage } }) =>
          stored(Effect.gen(function*() {
            const admin = yield* Admin
            const executionId = execution ?? (yield* admin.latestExecutionId(id))
            const events = yield* admin.readHistoryWithExecutionId(id, executionId)
            const from = events.findIndex(({ eventId }) => eventId > after)
            const shown = from === -1 ? [] : events.slice(from, from + limit)
            return {
              executionId,
              events: History.of(shown, {
                lostSignals: new Set(Ledger.of(events).lostSignals),
                seesPayloads: yield* seesPayloads
              }),
              total: events.length
            }
          })),
        requests: ({ query: { id } }) =>
          stored(Effect.gen(function*() {
            return Requests.shown(yield* InstanceDetail.read(id, { mostExecutions: 1 }), yield* seesPayloads)
          })),
        streams: ({ query: { id } }) => stored(Progress.list(id)),
        streamsLive: ({ query: { id } }) => limited(streams(id)),
        chunks: ({ query }) => stored(Effect.flatMap(seesPayloads, (sees) => Progress.read(query, sees))),
        limits: () => stored(Limits.read),
        definitions: () => stored(Definitions.read),
        queues: () =>
          stored(Effect.gen(function*() {
            const admin = yield* Admin
            return {
              queues: yield* QueueReport.readQueues,
              tasks: yield* QueueReport.countTasks,
              beforeStart: yield* admin.countMessagesBeforeStart
            }
          })),
        tasks: ({ query: { cursor, id, name, status } }) =>
          stored(Effect.gen(function*() {
            const sees = yield* seesPayloads
            const page = id === undefined
              ? yield* TaskReport.list({ status, name, cursor, hasPayloads: sees, limit: tasksOfPage })
              : { tasks: yield* TaskReport.read([id], { hasPayloads: sees }), next: null }
            return {
              tasks: page.tasks.map((task) => ({
                ...summaryOf(task),
                createdAtMs: task.createdAtMs,
                runAtMs: task.runAtMs,
                startedAtMs: task.startedAtMs,
                endedAtMs: task.endedAtMs,
                payload: task.payload
              })),
              next: page.next
            }
          })),
        schedules: ({ query: { cursor } }) => stored(Schedules.page(statuses, cursor)),
        schedule: ({ query: { name } }) => stored(Schedules.detail(statuses, name)),
        scheduleLive: ({ query: { name } }) => limited(schedules(name)),
        deadLetters: ({ query: { queue } }) =>
          stored(Effect.gen(function*() {
            const messages = yield* QueueReport.listDead(queue, lettersOfPage)
            return {
              queue,
              dead: yield* QueueReport.countDead(queue),
              messages: messages.map(({ attempts, diedAtMs, id, kind, reason }) => ({
                id,
                kind,
                deliveries: attempts,
                reason,
                diedAtMs
              }))
            }
          })),
        actions: ({ query: { cursor } }) =>
          stored(Effect.flatMap(Admin, (admin) => admin.listActions({ cursor, limit: actionsOfPage })))
      })
    })
  )

// internal

const longestLook = "10 seconds"
const mostExplained = 100
const eventsOfPage = 1000
const mostExecutions = 20
const mostAncestors = 20
const tasksOfPage = 50
const lettersOfPage = 100
const actionsOfPage = 50

type LiveSchedule = typeof Model.ScheduleDetail.Type | null

interface Asked {
  readonly search: typeof Model.Search.Type
  readonly limit: number
}

const explainMany = Effect.fnUntraced(function*({ limit, search }: Asked) {
  const found = yield* Reasons.explainMany({ search: yield* Search.of(search), limit })
  // What has ended since it was listed waits for nothing.
  const groups = found.groups.filter(({ cause }) => cause !== "Ended" || search.status !== undefined)
  return {
    instances: groups.reduce((sum, { instanceIds }) => sum + instanceIds.length, 0),
    isMore: found.isMore,
    groups: groups.map(({ instanceIds, ...group }) => ({
      ...group,
      instances: instanceIds.length,
      instanceId: instanceIds[0]!
    }))
  }
})

const detailOf = Effect.fnUntraced(function*(id: string, seesPayloads: boolean) {
  const admin = yield* Admin
  const found = yield* InstanceDetail.read(id, { mostExecutions })
  const { cause, sentence } = yield* admin.explain(id)
  const children = yield* admin.list({ parentId: id, limit: 1 })
  const detail: typeof Model.InstanceDetail.Type = {
    instance: Shapes.instance(found.state, { isListed: false, seesPayloads }),
    explanation: { sentence, cause: cause._tag },
    waits: found.waits.map(({ place, ...wait }) => ({
      kind: wait.kind,
      name: wait.name,
      instanceId: wait.instanceId,
      tag: wait.tag,
      eventId: wait.eventId,
      sinceMs: wait.sinceMs,
      place: place === null ? null : Shapes.place(place)
    })),
    messages: found.messages.map(({ answers, kind, name, place }) => ({
      kind,
      name,
      answers,
      place: Shapes.place(place)
    })),
    untaken: found.untaken,
    setAside: found.setAside,
    interruption: found.interruption,
    keyValues: found.keyValues.map(([key, value]) => ({ key, value: seesPayloads ? value : null })),
    executions: found.executions.map((one) => ({
      executionId: one.executionId,
      status: one.status,
      events: one.eventCount,
      startedAtMs: one.startedAtMs,
      endedAtMs: one.completedAtMs
    })),
    requests: {
      open: Requests.shown(found, false).filter(({ state }) => state === "Waiting" || state === "Taken").length,
      answered: found.answers.length
    },
    streams: (yield* Progress.list(id)).length,
    startsAtMs: found.state.startsAtMs,
    ancestors: yield* ancestorsOf(found.state.parentInstanceId),
    hasChildren: children.instances.length > 0 || children.next !== null,
    ofDuroxide: found.foreign === "duroxide" ? found.pinnedVersion : null,
    nowMs: yield* storeNowMs
  }
  return detail
})

/** The ancestors, from the root down. A very deep tree is cut at its root. */
const ancestorsOf = Effect.fnUntraced(function*(parentId: string | null) {
  const admin = yield* Admin
  const ids: Array<string> = []
  for (let id = parentId; id !== null && ids.length < mostAncestors;) {
    ids.unshift(id)
    id = Option.getOrNull(
      yield* admin.getParentId(id).pipe(
        // Deleted meanwhile.
        Effect.catchIf(({ reason }) => reason._tag === "InstanceNotFound", () => Effect.succeed(Option.none<string>()))
      )
    )
  }
  return ids
})
