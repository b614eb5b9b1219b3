/**
 * The HTTP interface of the dashboard: `read` looks, `operate` acts.
 *
 * The client of the page is derived from it, so is the OpenAPI document. Browsers load it, so it imports no module of a
 * server.
 *
 * @since 0.3.0
 */
import * as Context from "effect/Context"
import * as HttpApi from "effect/http-api/HttpApi"
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiGroup from "effect/http-api/HttpApiGroup"
import * as HttpApiMiddleware from "effect/http-api/HttpApiMiddleware"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as OpenApi from "effect/http-api/OpenApi"
import * as Schema from "effect/Schema"
import * as Model from "./Model.ts"
import * as Limits from "./models/Limits.ts"
import * as Requests from "./models/Requests.ts"
import * as Schedules from "./models/Schedules.ts"
import * as Streams from "./models/Streams.ts"

export * from "./Model.ts"
export * from "./models/Limits.ts"
export * from "./models/Requests.ts"
export * from "./models/Schedules.ts"
export * from "./models/Streams.ts"

/**
 * A person or program that uses the dashboard.
 *
 * @category models
 * @since 0.3.0
 */
export interface Actor {
  /** For the table of actions. */
  readonly name: string
  /** `read` looks, `operate` acts as well. */
  readonly role: "read" | "operate"
  /** Whether it sees payloads. Defaults to true. */
  readonly seesPayloads?: boolean | undefined
}

/**
 * Who sends the request.
 *
 * @category services
 * @since 0.3.0
 */
export class CurrentActor extends Context.Service<CurrentActor, Actor>()("duroxide-prisma/dashboard/CurrentActor") {}

/**
 * Decides who the caller is, and refuses requests of other sites.
 *
 * @category middleware
 * @since 0.3.0
 */
export class Access extends HttpApiMiddleware.Service<Access, { provides: CurrentActor }>()(
  "duroxide-prisma/dashboard/Access",
  { error: [Model.Unauthorized, Model.Forbidden] }
) {}

/**
 * Says of a request that does not fit the interface what does not.
 *
 * @category middleware
 * @since 0.3.0
 */
export class Fitting extends HttpApiMiddleware.Service<Fitting>()(
  "duroxide-prisma/dashboard/Fitting",
  { error: Model.InvalidRequest }
) {}

/** Whole numbers from 1 to `most`. */
const limit = (most: number) =>
  Schema.optionalKey(
    Schema.FiniteFromString.check(Schema.isInt(), Schema.isGreaterThan(0), Schema.isLessThanOrEqualTo(most))
  )

const failures = [Model.Refused, Model.Unavailable, Model.Forbidden] as const

const read = HttpApiGroup.make("read").add(
  HttpApiEndpoint.get("session", "/session", { success: Model.Session, error: failures }),
  HttpApiEndpoint.get("overview", "/overview", { success: Model.Overview, error: failures }),
  HttpApiEndpoint.get("live", "/live", { success: HttpApiSchema.StreamSse({ data: Model.Overview }), error: failures }),
  HttpApiEndpoint.get("instances", "/instances", {
    query: {
      ...Model.Search.fields,
      orderBy: Schema.optionalKey(Schema.Literals(["newest", "oldest", "id"])),
      cursor: Schema.optionalKey(Schema.String),
      /** Defaults to 100. */
      limit: limit(1000)
    },
    success: Model.InstancePage,
    error: failures
  }),
  HttpApiEndpoint.get("reasons", "/reasons", {
    /** `limit`: how many instances are looked at; defaults to 100. */
    query: { ...Model.Search.fields, limit: limit(1000) },
    success: Model.Reasons,
    error: failures
  }),
  HttpApiEndpoint.get("instance", "/instance", {
    query: { id: Schema.String },
    success: Model.InstanceDetail,
    error: failures
  }),
  HttpApiEndpoint.get("instanceLive", "/instance/live", {
    query: { id: Schema.String },
    /** Whenever something has changed. Null: it was deleted. */
    success: HttpApiSchema.StreamSse({ data: Schema.NullOr(Model.Instance) }),
    error: failures
  }),
  HttpApiEndpoint.get("history", "/instance/history", {
    query: {
      id: Schema.String,
      /** Defaults to the current one. */
      execution: Schema.optionalKey(Schema.FiniteFromString),
      /** Only events after this one. */
      after: Schema.optionalKey(Schema.FiniteFromString),
      /** Defaults to 1,000. */
      limit: limit(5000)
    },
    success: Model.History,
    error: failures
  }),
  HttpApiEndpoint.get("requests", "/instance/requests", {
    query: { id: Schema.String },
    /** The newest 200 that the current execution was asked, and answers to earlier ones that are kept. */
    success: Schema.Array(Requests.Question),
    error: failures
  }),
  HttpApiEndpoint.get("streams", "/instance/streams", {
    query: { id: Schema.String },
    success: Schema.Array(Streams.ProgressStream),
    error: failures
  }),
  HttpApiEndpoint.get("streamsLive", "/instance/streams/live", {
    query: { id: Schema.String },
    /** Whenever something was appended. */
    success: HttpApiSchema.StreamSse({ data: Schema.Array(Streams.ProgressStream) }),
    error: failures
  }),
  HttpApiEndpoint.get("chunks", "/instance/chunks", {
    query: {
      id: Schema.String,
      stream: Schema.String,
      /** The first offset; without it, the newest 500. */
      from: Schema.optionalKey(
        Schema.FiniteFromString.check(Schema.isInt(), Schema.isGreaterThanOrEqualTo(0))
      )
    },
    success: Streams.ChunkPage,
    error: failures
  }),
  HttpApiEndpoint.get("limits", "/limits", { success: Schema.Array(Limits.Limit), error: failures }),
  HttpApiEndpoint.get("definitions", "/definitions", { success: Schema.Array(Model.Definition), error: failures }),
  HttpApiEndpoint.get("queues", "/queues", { success: Model.Queues, error: failures }),
  HttpApiEndpoint.get("tasks", "/tasks", {
    query: {
      /** Defaults to dead ones, then those that have not ended. */
      status: Schema.optionalKey(Model.Task.fields.status),
      name: Schema.optionalKey(Schema.String),
      /** Only this one, whatever its status. */
      id: Schema.optionalKey(Schema.String),
      cursor: Schema.optionalKey(Schema.String)
    },
    success: Model.TaskPage,
    error: failures
  }),
  HttpApiEndpoint.get("schedules", "/schedules", {
    query: { cursor: Schema.optionalKey(Schema.String) },
    success: Schedules.SchedulePage,
    error: failures
  }),
  HttpApiEndpoint.get("schedule", "/schedule", {
    query: { name: Schema.String },
    success: Schedules.ScheduleDetail,
    error: failures
  }),
  HttpApiEndpoint.get("scheduleLive", "/schedule/live", {
    query: { name: Schema.String },
    /** Whenever something has changed. Null: it was deleted. */
    success: HttpApiSchema.StreamSse({ data: Schema.NullOr(Schedules.ScheduleDetail) }),
    error: failures
  }),
  HttpApiEndpoint.get("deadLetters", "/dead-letters", {
    query: { queue: Schema.String },
    success: Model.DeadLetters,
    error: failures
  }),
  HttpApiEndpoint.get("actions", "/actions", {
    query: { cursor: Schema.optionalKey(Schema.String) },
    success: Model.OperatorActionPage,
    error: failures
  })
).middleware(Fitting).middleware(Access)

const Reason = Schema.optionalKey(Schema.String)

/** What a `Date` can be. */
const Instant = Schema.Finite.check(
  Schema.isInt(),
  Schema.isGreaterThanOrEqualTo(0),
  Schema.isLessThanOrEqualTo(8.64e15)
)

const One = Schema.Struct({ instanceId: Schema.String })
const Done = Schema.Struct({
  /** What happened, in a sentence. */
  message: Schema.String
})

const operate = HttpApiGroup.make("operate").add(
  HttpApiEndpoint.post("start", "/start", {
    payload: Schema.Struct({
      orchestration: Schema.String,
      /** Without one, the newest runs that the process serves which claims the start. */
      version: Schema.optionalKey(Schema.String),
      /** Defaults to a random one. */
      instanceId: Schema.optionalKey(Schema.String),
      payload: Schema.Json,
      /** When it begins, milliseconds since the Unix epoch. */
      startAtMs: Schema.optionalKey(Instant),
      /** How long after the start is stored it begins, not with `startAtMs`. */
      delayMs: Schema.optionalKey(Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0)))
    }),
    success: Schema.Struct({ instanceId: Schema.String, message: Schema.String }),
    error: failures
  }),
  HttpApiEndpoint.post("signal", "/signal", {
    payload: Schema.Struct({ ...One.fields, name: Schema.String, payload: Schema.Json }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("request", "/request", {
    payload: Schema.Struct({
      ...One.fields,
      name: Schema.String,
      payload: Schema.Json,
      /** How long to wait for the answer, at most a minute. Defaults to 20 seconds. */
      timeoutMs: Schema.optionalKey(
        Schema.Finite.check(Schema.isGreaterThan(0), Schema.isLessThanOrEqualTo(60_000))
      )
    }),
    success: Requests.Asked,
    error: failures
  }),
  HttpApiEndpoint.post("interrupt", "/interrupt", {
    payload: Schema.Struct({
      ...One.fields,
      reason: Reason,
      /** How long it may clean up; no limit without it. */
      deadlineMs: Schema.optionalKey(Schema.Finite)
    }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("terminate", "/terminate", {
    payload: Schema.Struct({ ...One.fields, reason: Reason }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("retry", "/retry", {
    payload: Schema.Struct({
      ...One.fields,
      /** The last event that stays; defaults to what `Admin.retry` chooses. */
      from: Schema.optionalKey(Schema.Finite),
      reason: Reason,
      dryRun: Schema.Boolean
    }),
    success: Model.Retried,
    error: failures
  }),
  HttpApiEndpoint.post("fork", "/fork", {
    payload: Schema.Struct({ ...One.fields, atEvent: Schema.Finite, newId: Schema.String }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("redriveSignal", "/redrive-signal", {
    payload: Schema.Struct({ ...One.fields, event: Schema.Finite, execution: Schema.optionalKey(Schema.Finite) }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("delete", "/delete", {
    payload: Schema.Struct({ ...One.fields, force: Schema.Boolean }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("pause", "/pause", {
    payload: Schema.Struct({ target: Model.PauseTarget, reason: Reason }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("resume", "/resume", {
    payload: Schema.Struct({ target: Model.PauseTarget }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("bulk", "/bulk", {
    payload: Model.Bulk,
    success: HttpApiSchema.StreamSse({ data: Model.BulkProgress }),
    error: failures
  }),
  HttpApiEndpoint.post("redriveTasks", "/redrive-tasks", {
    payload: Schema.Struct({ taskIds: Schema.Array(Schema.String) }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("cancelTasks", "/cancel-tasks", {
    payload: Schema.Struct({ taskIds: Schema.Array(Schema.String), reason: Reason }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("redriveMessages", "/redrive-messages", {
    payload: Schema.Struct({
      queue: Schema.String,
      /** Most messages; defaults to all. */
      limit: Schema.optionalKey(Schema.Finite)
    }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("runSchedule", "/run-schedule", {
    payload: Schema.Struct({ name: Schema.String }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("pauseSchedule", "/pause-schedule", {
    payload: Schema.Struct({ name: Schema.String, reason: Reason }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("resumeSchedule", "/resume-schedule", {
    payload: Schema.Struct({ name: Schema.String }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("backfillSchedule", "/backfill-schedule", {
    payload: Schema.Struct({
      name: Schema.String,
      /** Milliseconds since the Unix epoch; both ends are included. */
      fromMs: Instant,
      toMs: Instant,
      /** Counts them, and starts nothing. */
      dryRun: Schema.Boolean
    }),
    success: Schedules.Backfilled,
    error: failures
  }),
  HttpApiEndpoint.post("deleteSchedule", "/delete-schedule", {
    payload: Schema.Struct({ name: Schema.String }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("setLimit", "/set-limit", {
    payload: Schema.Struct({
      kind: Limits.LimitKind,
      name: Schema.String,
      scope: Limits.LimitScope,
      bound: Limits.Bound
    }),
    success: Done,
    error: failures
  }),
  HttpApiEndpoint.post("removeLimit", "/remove-limit", {
    payload: Schema.Struct({
      kind: Limits.LimitKind,
      name: Schema.String,
      /** Without it, all limits of the definition are removed. */
      scope: Schema.optionalKey(Limits.LimitScope)
    }),
    success: Done,
    error: failures
  })
).middleware(Fitting).middleware(Access)

/**
 * The whole interface; `Dashboard.layer` serves it below its path, in `/api`.
 *
 * @category api
 * @since 0.3.0
 */
export const Api = HttpApi.make("duroxide-prisma").add(read, operate).prefix("/api")
  .annotate(OpenApi.Title, "duroxide-prisma")
  // A filter with a misspelt field would select everything.
  .annotate(HttpApi.QueryParseOptions, { onExcessProperty: "error" })
  .annotate(HttpApi.PayloadParseOptions, { onExcessProperty: "error" })
