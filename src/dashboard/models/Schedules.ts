/**
 * Schedules, as the HTTP interface says them.
 *
 * @since 0.3.0
 */
import * as Schema from "effect/Schema"

const Ms = Schema.Finite
const Count = Schema.Finite

/**
 * What became of an occurrence of a schedule.
 *
 * @category models
 * @since 0.3.0
 */
export const ScheduleRun = Schema.Struct({
  /** From 1, for each schedule. */
  number: Count,
  kind: Schema.Literals(["Scheduled", "Manual", "Backfill"]),
  occurrenceMs: Ms,
  /** The first occurrence of those that were missed; null unless it is `Missed`. */
  sinceMs: Schema.NullOr(Ms),
  outcome: Schema.Literals(["Started", "Skipped", "Queued", "Missed", "Refused"]),
  /** Why it started nothing; null if it did. */
  note: Schema.NullOr(Schema.String),
  instanceId: Schema.NullOr(Schema.String),
  taskId: Schema.NullOr(Schema.String),
  settledMs: Ms,
  /** Status of that instance or task, such as `Completed`; null if it has not begun, or is no longer there. */
  status: Schema.NullOr(
    Schema.Literals([
      "Running",
      "Completed",
      "Failed",
      "Cancelled",
      "ContinuedAsNew",
      "Pending",
      "Dead"
    ])
  )
})

/**
 * A schedule: when it is due, and what it starts.
 *
 * @category models
 * @since 0.3.0
 */
export const Schedule = Schema.Struct({
  name: Schema.String,
  /** `Overdue`: an occurrence is more than a minute late, `problem` says why. `Ended`: no occurrence follows. */
  state: Schema.Literals(["Active", "Paused", "Overdue", "Ended"]),
  problem: Schema.NullOr(Schema.String),
  /** Null if a newer version has written it in a form that this one cannot read, as `target`. */
  timing: Schema.NullOr(Schema.Struct({
    /** Such as `at 04:00 every day`. */
    words: Schema.String,
    /** Null unless it is one of cron. */
    expression: Schema.NullOr(Schema.String),
    timeZone: Schema.NullOr(Schema.String)
  })),
  target: Schema.NullOr(Schema.Struct({
    kind: Schema.Literals(["orchestration", "task"]),
    name: Schema.String,
    /** Null for a task, and for the newest version that is served. */
    version: Schema.NullOr(Schema.String)
  })),
  pause: Schema.NullOr(Schema.Struct({ sinceMs: Ms, reason: Schema.NullOr(Schema.String) })),
  /** The next occurrences, without jitter: 3 in a list, 20 of one; none while it is paused. */
  nextMs: Schema.Array(Ms),
  /** The occurrence that waits for the end of the last run. */
  queuedMs: Schema.NullOr(Ms),
  /** Runs by hand and backfills that no scheduler has begun or finished. */
  requests: Count,
  /** Whether what it started last has not ended. */
  isRunning: Schema.Boolean,
  lastRun: Schema.NullOr(ScheduleRun)
})

/**
 * A page of schedules, by name.
 *
 * @category models
 * @since 0.3.0
 */
export const SchedulePage = Schema.Struct({
  schedules: Schema.Array(Schedule),
  /** The cursor of the next page; null if none follows. */
  next: Schema.NullOr(Schema.String)
})

/**
 * A schedule with its rules and its last 100 runs, the newest first.
 *
 * @category models
 * @since 0.3.0
 */
export const ScheduleDetail = Schema.Struct({
  schedule: Schedule,
  /** Null if a newer version has written them in a form that this one cannot read. */
  rules: Schema.NullOr(Schema.Struct({
    overlap: Schema.Literals(["skip", "queue", "allow", "interrupt"]),
    jitterMs: Ms,
    catchUp: Schema.Literals(["none", "last", "within"]),
    /** How old an occurrence may be that still starts; null unless `catchUp` is `within`. */
    withinMs: Schema.NullOr(Ms),
    /** All dates of one that has dates; otherwise none. */
    datesMs: Schema.Array(Ms)
  })),
  /** Whether code makes its payloads: then only processes that have this code fire it. */
  isCode: Schema.Boolean,
  createdMs: Ms,
  /** When its definition last changed. */
  updatedMs: Ms,
  runs: Schema.Array(ScheduleRun),
  nowMs: Ms
})

/**
 * What a backfill starts, or would start.
 *
 * @category models
 * @since 0.3.0
 */
export const Backfilled = Schema.Struct({
  /** Occurrences in the range that are settled; those that have started something are among them. */
  occurrences: Count,
  /** Whether there are more than were counted. */
  isMore: Schema.Boolean,
  /** The first five. */
  firstMs: Schema.Array(Ms),
  /** What happened, in a sentence. */
  message: Schema.String
})
