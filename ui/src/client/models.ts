/** The answers of the server by name. */
import type * as Api from "../../../src/dashboard/Api.ts"

export type Instance = typeof Api.Instance.Type
export type InstanceDetail = typeof Api.InstanceDetail.Type
export type HistoryEvent = typeof Api.HistoryEvent.Type
export type Overview = typeof Api.Overview.Type
export type Pace = typeof Api.Pace.Type
export type Process = typeof Api.Process.Type
export type Pause = typeof Api.Pause.Type
export type PauseTarget = typeof Api.PauseTarget.Type
export type Place = typeof Api.Place.Type
export type Attention = typeof Api.Attention.Type
export type AttributeValue = typeof Api.AttributeValue.Type
export type Definition = typeof Api.Definition.Type
export type Task = typeof Api.Task.Type
export type Schedule = typeof Api.Schedule.Type
export type ScheduleRun = typeof Api.ScheduleRun.Type
export type ScheduleDetail = typeof Api.ScheduleDetail.Type
export type Backfilled = typeof Api.Backfilled.Type
export type ProgressStream = typeof Api.ProgressStream.Type
export type Chunk = typeof Api.Chunk.Type
export type Question = typeof Api.Question.Type
export type Asked = typeof Api.Asked.Type
export type Limit = typeof Api.Limit.Type
export type LimitKind = typeof Api.LimitKind.Type
export type LimitScope = typeof Api.LimitScope.Type
export type Bound = typeof Api.Bound.Type
export type Session = typeof Api.Session.Type
export type JsonSchema = typeof Api.JsonSchema.Type
export type Search = typeof Api.Search.Type
export type Bulk = typeof Api.Bulk.Type
export type BulkProgress = typeof Api.BulkProgress.Type
export type RetrySum = typeof Api.RetrySum.Type
export type Retried = typeof Api.Retried.Type
export type AuditEntry = typeof Api.OperatorActionPage.Type["actions"][number]
