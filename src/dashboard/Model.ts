/**
 * What the dashboard reads and does, as its HTTP interface says it.
 *
 * Times are milliseconds since the Unix epoch by the store's clock, ages milliseconds.
 *
 * @since 0.3.0
 */
import * as Schema from "effect/Schema"

// -----------------------------------------------------------------------------
// errors
// -----------------------------------------------------------------------------

/**
 * The request names no one who may look: it has no token, or a wrong one. Status 401.
 *
 * @category errors
 * @since 0.3.0
 */
export class Unauthorized extends Schema.TaggedError<Unauthorized>("duroxide-prisma/dashboard/Unauthorized")(
  "Unauthorized",
  {
    /** What to do, for people. */
    message: Schema.String,
    /** Whether the page asks for a token. Defaults to false: it shows the message. */
    asksForToken: Schema.optionalKey(Schema.Boolean)
  },
  { httpApiStatus: 401 }
) {}

/**
 * The caller may not do this: the role only reads, or the request comes from another site. Status 403.
 *
 * @category errors
 * @since 0.3.0
 */
export class Forbidden extends Schema.TaggedError<Forbidden>("duroxide-prisma/dashboard/Forbidden")(
  "Forbidden",
  { message: Schema.String },
  { httpApiStatus: 403 }
) {}

/**
 * The store refused it, and nothing was changed. `code` is the tag of the reason, as the command line has it, such as
 * `InstanceNotFound` or `RetryRefused`. Status 409.
 *
 * @category errors
 * @since 0.3.0
 */
export class Refused extends Schema.TaggedError<Refused>("duroxide-prisma/dashboard/Refused")(
  "Refused",
  { code: Schema.String, message: Schema.String },
  { httpApiStatus: 409 }
) {}

/**
 * The request does not fit the interface: the message says where, and what is allowed there. Status 400.
 *
 * @category errors
 * @since 0.3.0
 */
export class InvalidRequest extends Schema.TaggedError<InvalidRequest>("duroxide-prisma/dashboard/InvalidRequest")(
  "InvalidRequest",
  { message: Schema.String },
  { httpApiStatus: 400 }
) {}

/**
 * The store did not answer, or too many streams are open. Status 503.
 *
 * @category errors
 * @since 0.3.0
 */
export class Unavailable extends Schema.TaggedError<Unavailable>("duroxide-prisma/dashboard/Unavailable")(
  "Unavailable",
  { message: Schema.String },
  { httpApiStatus: 503 }
) {}

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

const Ms = Schema.Finite
const Count = Schema.Finite
const orNull = <S extends Schema.Constraint>(schema: S) => Schema.NullOr(schema)

/**
 * What is paused. `name` is that of the orchestration, activity or tag, or the id of the instance; null for everything.
 *
 * @category models
 * @since 0.3.0
 */
export const PauseTarget = Schema.Struct({
  kind: Schema.Literals(["instance", "orchestration", "activity", "tag", "everything"]),
  name: orNull(Schema.String),
  /** The version of an orchestration; null: all. */
  version: orNull(Schema.String)
})

/**
 * A pause, since when and why.
 *
 * @category models
 * @since 0.3.0
 */
export const Pause = Schema.Struct({ target: PauseTarget, reason: orNull(Schema.String), sinceMs: Ms })

/**
 * Why no process could run the next turn of an instance.
 *
 * @category models
 * @since 0.3.0
 */
export const Block = Schema.Struct({
  reason: Schema.Literals(["HistoryDiffers", "DataUnreadable", "NotDurable", "Endless"]),
  /** For people. */
  problem: Schema.String,
  /** The event at which the replay stopped. */
  eventId: Count,
  /** The build of the process that tried. */
  build: Schema.String,
  sinceMs: Ms,
  triedAtMs: Ms,
  tries: Count
})

/**
 * `ContinuedAsNew` only between two executions.
 *
 * @category models
 * @since 0.3.0
 */
export const Status = Schema.Literals(["Running", "Completed", "Failed", "Cancelled", "ContinuedAsNew"])

/**
 * A text, a number or a time.
 *
 * @category models
 * @since 0.3.0
 */
export const AttributeValue = Schema.Union([Schema.String, Schema.Finite, Schema.Struct({ timeMs: Ms })])

/**
 * What an instance tries again.
 *
 * @category models
 * @since 0.3.0
 */
export const Retry = Schema.Struct({
  /** Null if its event cannot be read. */
  activity: orNull(Schema.String),
  /** Why the last try failed; null without a failure. */
  error: orNull(Schema.String),
  /** When the next try is due. */
  atMs: Ms,
  isRunning: Schema.Boolean
})

/**
 * An instance. Its payloads are null where the caller may not see them, and cut after 200 characters in lists.
 *
 * @category models
 * @since 0.3.0
 */
export const Instance = Schema.Struct({
  instanceId: Schema.String,
  orchestration: Schema.String,
  /** Null before its first turn. */
  version: orNull(Schema.String),
  status: Status,
  executionId: Count,
  parentId: orNull(Schema.String),
  /** JSON text of a completed one. */
  output: orNull(Schema.String),
  /** Why it failed or was cancelled. */
  error: orNull(Schema.String),
  customStatus: orNull(Schema.String),
  attributes: Schema.Record(Schema.String, AttributeValue),
  block: orNull(Block),
  pause: orNull(Pause),
  /** Set in lists of those that try an activity again. */
  retry: orNull(Retry),
  createdAtMs: Ms,
  updatedAtMs: Ms
})

/**
 * A page of instances. It may be short, even empty, although more follow.
 *
 * @category models
 * @since 0.3.0
 */
export const InstancePage = Schema.Struct({
  instances: Schema.Array(Instance),
  /** The cursor of the next page; null if no instance follows. */
  next: orNull(Schema.String)
})

/**
 * Selects instances, in the words of `list` of the command line.
 *
 * @category models
 * @since 0.3.0
 */
export const Search = Schema.Struct({
  status: Schema.optionalKey(
    Schema.Literals(["Running", "Completed", "Failed", "Cancelled", "Blocked", "Paused"])
  ),
  /** Name of the orchestration. */
  name: Schema.optionalKey(Schema.String),
  version: Schema.optionalKey(Schema.String),
  idPrefix: Schema.optionalKey(Schema.String),
  /** Only its direct children. */
  parent: Schema.optionalKey(Schema.String),
  roots: Schema.optionalKey(Schema.Literal("true")),
  retrying: Schema.optionalKey(Schema.Literal("true")),
  /** Such as `customer=c1`, `amount:=25`, `amount:>=10`, `due:<2026-12-01T00:00Z`; separated by line breaks. */
  attributes: Schema.optionalKey(Schema.String),
  createdFromMs: Schema.optionalKey(Schema.FiniteFromString),
  createdBeforeMs: Schema.optionalKey(Schema.FiniteFromString),
  updatedFromMs: Schema.optionalKey(Schema.FiniteFromString),
  updatedBeforeMs: Schema.optionalKey(Schema.FiniteFromString),
  customStatus: Schema.optionalKey(Schema.String),
  error: Schema.optionalKey(Schema.String)
})

/**
 * How many instances there are of a name, status and version.
 *
 * @category models
 * @since 0.3.0
 */
export const InstanceCount = Schema.Struct({
  orchestration: Schema.String,
  status: Schema.Literals(["Running", "Completed", "Failed", "Cancelled"]),
  /** Null before the first turn, or where versions are not distinguished. */
  version: orNull(Schema.String),
  instances: Count,
  isEstimate: Schema.Boolean
})

/**
 * Where a message or an activity stands in its queue.
 *
 * @category models
 * @since 0.3.0
 */
export const Place = Schema.Struct({
  visibleAtMs: Ms,
  /** When the lock of a process expires; null when free. */
  lockedUntilMs: orNull(Ms),
  deliveries: Count,
  isDue: Schema.Boolean
})

/**
 * An open wait of an instance.
 *
 * @category models
 * @since 0.3.0
 */
export const Wait = Schema.Struct({
  kind: Schema.Literals(["signal", "request", "timer", "activity", "child"]),
  name: orNull(Schema.String),
  /** Id of a child. */
  instanceId: orNull(Schema.String),
  tag: orNull(Schema.String),
  eventId: Count,
  sinceMs: Ms,
  place: orNull(Place)
})

/**
 * A message that no turn has read.
 *
 * @category models
 * @since 0.3.0
 */
export const Message = Schema.Struct({
  kind: Schema.String,
  name: orNull(Schema.String),
  /** The event that it answers. */
  answers: orNull(Count),
  place: Place
})

/**
 * An execution of an instance.
 *
 * @category models
 * @since 0.3.0
 */
export const Execution = Schema.Struct({
  executionId: Count,
  status: Status,
  events: Count,
  startedAtMs: Ms,
  endedAtMs: orNull(Ms)
})

/**
 * A signal that no process could read, and that was set aside.
 *
 * @category models
 * @since 0.3.0
 */
export const SetAside = Schema.Struct({
  name: Schema.String,
  eventId: Count,
  sinceMs: Ms,
  /** The event of the signal that was sent again for it. */
  sentAgain: orNull(Count)
})

/**
 * Everything of an instance but its events and children.
 *
 * @category models
 * @since 0.3.0
 */
export const InstanceDetail = Schema.Struct({
  instance: Instance,
  /** Why it does not continue at this moment. */
  explanation: Schema.Struct({
    sentence: Schema.String,
    /** A tag of `Explanation.Cause`. */
    cause: Schema.String
  }),
  waits: Schema.Array(Wait),
  messages: Schema.Array(Message),
  /** Signals that have come and that the program has not taken. */
  untaken: Schema.Array(Schema.Struct({ name: Schema.String, eventId: Count, sinceMs: Ms })),
  setAside: Schema.Array(SetAside),
  interruption: orNull(Schema.Struct({ sinceMs: Ms, reason: Schema.String })),
  /** JSON texts; null where the caller may not see payloads. */
  keyValues: Schema.Array(Schema.Struct({ key: Schema.String, value: orNull(Schema.String) })),
  /** The newest ones, at most 100, the newest last. */
  executions: Schema.Array(Execution),
  /** How many questions it was asked and has not answered, and how many of its answers are kept. */
  requests: Schema.Struct({ open: Count, answered: Count }),
  /** How many streams it has. */
  streams: Count,
  /** When it begins, if that is later; null otherwise. */
  startsAtMs: orNull(Ms),
  /** The ancestors, from the root down to the parent; the nearest 20. */
  ancestors: Schema.Array(Schema.String),
  hasChildren: Schema.Boolean,
  /** Set if only processes of Duroxide with this version run it. */
  ofDuroxide: orNull(Schema.String),
  nowMs: Ms
})

/**
 * An event of a history.
 *
 * @category models
 * @since 0.3.0
 */
export const HistoryEvent = Schema.Struct({
  eventId: Count,
  atMs: Ms,
  /** The stored type, such as `ActivityScheduled`. */
  type: Schema.String,
  /** What happened, in the words of the guides, such as `activity failed`. */
  kind: Schema.String,
  /** The event that it answers. */
  answers: orNull(Count),
  /** Name of the activity, signal, orchestration or key. */
  name: orNull(Schema.String),
  tag: orNull(Schema.String),
  /** Id of the child, or of the detached instance. */
  instanceId: orNull(Schema.String),
  /** When the timer is due. */
  fireAtMs: orNull(Ms),
  /** What failed, or why something was given up, for people. */
  problem: orNull(Schema.String),
  /** JSON text; null if it has none, or where the caller may not see payloads. */
  payload: orNull(Schema.String),
  isFailure: Schema.Boolean
})

/**
 * Events of one execution, in order.
 *
 * @category models
 * @since 0.3.0
 */
export const History = Schema.Struct({
  executionId: Count,
  events: Schema.Array(HistoryEvent),
  /** How many events the execution has. */
  total: Count
})

/**
 * What is due in a queue of the store.
 *
 * @category models
 * @since 0.3.0
 */
export const Due = Schema.Struct({
  kind: Schema.Literals(["orchestration", "activity"]),
  name: Schema.String,
  version: orNull(Schema.String),
  tag: orNull(Schema.String),
  waiting: Count,
  running: Count,
  oldestAgeMs: orNull(Ms),
  /** Whether more wait than were counted. */
  isMore: Schema.Boolean,
  /** How many living processes serve it; null where only those of Duroxide in Rust can. */
  servedBy: orNull(Count),
  isPaused: Schema.Boolean
})

/**
 * A process that runs work, or that has died.
 *
 * @category models
 * @since 0.3.0
 */
export const Process = Schema.Struct({
  id: Schema.String,
  build: Schema.String,
  host: Schema.String,
  pid: Count,
  sinceMs: Ms,
  seenMs: Ms,
  isAlive: Schema.Boolean,
  isListening: Schema.Boolean,
  orchestrations: Schema.Array(Schema.String),
  activities: Schema.Array(Schema.String),
  /** The tags that it takes, null for activities without one; null: any. */
  tags: orNull(Schema.Array(orNull(Schema.String))),
  orchestrationSlots: orNull(Count),
  activitySlots: orNull(Count),
  orchestrationSlotsInUse: orNull(Count),
  activitySlotsInUse: orNull(Count)
})

/**
 * Something that a person should look at.
 *
 * @category models
 * @since 0.3.0
 */
export const Attention = Schema.Struct({
  kind: Schema.Literals([
    "blocked",
    "failed",
    "retrying",
    "unserved",
    "late",
    "paused",
    "deadTasks",
    "deadLetters",
    "deadProcesses",
    "overdueSchedules"
  ]),
  /** The reason, in one sentence. */
  text: Schema.String,
  /** Name of the definition or queue; null where it is about all. */
  name: orNull(Schema.String),
  count: orNull(Count)
})

/**
 * How many instances started and ended, and how many were blocked.
 *
 * @category models
 * @since 0.3.0
 */
export const Pace = Schema.Struct({
  atMs: Ms,
  /** Instances per minute, as the next three. */
  started: Count,
  completed: Count,
  failed: Count,
  cancelled: Count,
  /** At this moment. */
  blocked: Count
})

/**
 * What happens in the store.
 *
 * @category models
 * @since 0.3.0
 */
export const Overview = Schema.Struct({
  nowMs: Ms,
  counts: Schema.Array(InstanceCount),
  blocked: Count,
  /** The last one is now; those before are what this process saw while pages were open, an hour at most. */
  paces: Schema.Array(Pace),
  due: Schema.Array(Due),
  pauses: Schema.Array(Pause),
  pausedInstances: Count,
  processes: Schema.Array(Process),
  attention: Schema.Array(Attention),
  /** Null if tasks and outbox did not answer. */
  tasks: orNull(Schema.Struct({ pending: Count, running: Count, dead: Count, oldestAgeMs: orNull(Ms) })),
  outbox: orNull(Schema.Struct({ waiting: Count, failing: Count, oldestAgeMs: orNull(Ms) })),
  /** Why the store has not answered since then; null if it has. */
  problem: orNull(Schema.String)
})

/**
 * Instances that wait for the same.
 *
 * @category models
 * @since 0.3.0
 */
export const Reasons = Schema.Struct({
  instances: Count,
  /** Whether more instances match than were looked at. */
  isMore: Schema.Boolean,
  groups: Schema.Array(Schema.Struct({
    orchestration: Schema.String,
    cause: Schema.String,
    reason: Schema.String,
    sinceMs: orNull(Ms),
    nextMs: orNull(Ms),
    instances: Count,
    /** One of them. */
    instanceId: Schema.String
  }))
})

/**
 * An orchestration with its versions.
 *
 * @category models
 * @since 0.3.0
 */
export const Definition = Schema.Struct({
  name: Schema.String,
  versions: Schema.Array(Schema.Struct({
    /** Null before the first turn. */
    version: orNull(Schema.String),
    running: Count,
    /** How many of the running ones are blocked. */
    blocked: Count,
    completed: Count,
    failed: Count,
    cancelled: Count,
    isEstimate: Schema.Boolean,
    servedBy: Count,
    builds: Schema.Array(Schema.String)
  })),
  pauses: Schema.Array(Pause)
})

/**
 * Queues of messages, their dead letters, and tasks by name.
 *
 * @category models
 * @since 0.3.0
 */
export const Queues = Schema.Struct({
  queues: Schema.Array(Schema.Struct({
    queue: Schema.String,
    waiting: Count,
    running: Count,
    later: Count,
    dead: Count,
    oldestAgeMs: orNull(Ms)
  })),
  tasks: Schema.Array(Schema.Struct({
    task: Schema.String,
    pending: Count,
    running: Count,
    completed: Count,
    dead: Count,
    cancelled: Count
  })),
  /** Messages for ids without an instance. */
  beforeStart: Count
})

/**
 * A task.
 *
 * @category models
 * @since 0.3.0
 */
export const Task = Schema.Struct({
  taskId: Schema.String,
  name: Schema.String,
  key: orNull(Schema.String),
  status: Schema.Literals(["Pending", "Running", "Completed", "Dead", "Cancelled"]),
  attempts: Count,
  counted: Count,
  maxAttempts: Count,
  error: orNull(Schema.String),
  workerId: orNull(Schema.String),
  /** The limit whose slot it waits for, such as `Charge/tenant-7`. */
  waitsForLimit: orNull(Schema.String),
  createdAtMs: Ms,
  runAtMs: Ms,
  startedAtMs: orNull(Ms),
  endedAtMs: orNull(Ms),
  /** The first 10,000 characters. */
  payload: orNull(Schema.String)
})

/**
 * A page of tasks.
 *
 * @category models
 * @since 0.3.0
 */
export const TaskPage = Schema.Struct({ tasks: Schema.Array(Task), next: orNull(Schema.String) })

/**
 * Dead letters of a queue, the oldest first.
 *
 * @category models
 * @since 0.3.0
 */
export const DeadLetters = Schema.Struct({
  queue: Schema.String,
  dead: Count,
  messages: Schema.Array(Schema.Struct({
    id: Schema.String,
    kind: orNull(Schema.String),
    deliveries: Count,
    /** Null: delivered too often. */
    reason: orNull(Schema.String),
    diedAtMs: Ms
  }))
})

/**
 * What someone did with the dashboard.
 *
 * @category models
 * @since 0.3.0
 */
export const OperatorAction = Schema.Struct({
  id: Schema.String,
  atMs: Ms,
  actor: Schema.String,
  /** Such as `retry`. */
  action: Schema.String,
  /** The id of an instance, a queue, a definition; or the filter of many. */
  target: Schema.String,
  /** What was said about it: a reason, numbers. No payloads. */
  details: Schema.String,
  outcome: Schema.Literals(["done", "refused", "failed"])
})

/**
 * A page of actions, the newest first.
 *
 * @category models
 * @since 0.3.0
 */
export const OperatorActionPage = Schema.Struct({
  actions: Schema.Array(OperatorAction),
  next: orNull(Schema.String)
})

/**
 * A JSON Schema document of a payload: `schema`, whose `$ref`s name `definitions`.
 *
 * @category models
 * @since 0.3.0
 */
export const JsonSchema = Schema.Struct({
  schema: Schema.Json,
  definitions: Schema.Record(Schema.String, Schema.Json)
})

/**
 * Who looks at the dashboard, and what it knows of the application.
 *
 * @category models
 * @since 0.3.0
 */
export const Session = Schema.Struct({
  actor: Schema.String,
  role: Schema.Literals(["read", "operate"]),
  /** Whether payloads are among the answers. */
  seesPayloads: Schema.Boolean,
  /** `host:port/database`. */
  address: Schema.String,
  schema: Schema.String,
  /** Version of this package. */
  packageVersion: Schema.String,
  /** Orchestrations whose payloads the dashboard makes forms for. */
  orchestrations: Schema.Array(
    Schema.Struct({ name: Schema.String, version: Schema.String, payload: orNull(JsonSchema) })
  ),
  /** Signals whose payloads it makes forms for. */
  signals: Schema.Array(Schema.Struct({ name: Schema.String, payload: orNull(JsonSchema) })),
  /** Requests whose payloads it makes forms for. */
  requests: Schema.Array(Schema.Struct({ name: Schema.String, payload: orNull(JsonSchema) })),
  /** A link to a dashboard of metrics; null without one. */
  metricsUrl: orNull(Schema.String)
})

// -----------------------------------------------------------------------------
// actions
// -----------------------------------------------------------------------------

const Reason = Schema.optionalKey(Schema.String)

/**
 * What a retry does, or would do.
 *
 * @category models
 * @since 0.3.0
 */
export const Retried = Schema.Struct({
  instances: Schema.Array(Schema.Struct({
    instanceId: Schema.String,
    /** The last event that stays. */
    from: Count,
    /** The first and the last event that are removed; null if all stay. */
    removed: orNull(Schema.Array(Count)),
    /** Activities that run again, with the same idempotency keys. */
    again: Schema.Array(Schema.Struct({ name: Schema.String, eventId: Count })),
    /** Activities whose calls are removed; their effects stay. */
    forgotten: Schema.Array(Schema.Struct({ name: Schema.String, eventId: Count })),
    /**
     * Tasks that it waits for again, and that run again if they are dead or were cancelled. The id is null if calls
     * share the task, the name if the input of the call is sealed.
     */
    tasks: Schema.Array(
      Schema.Struct({
        id: orNull(Schema.String),
        name: orNull(Schema.String),
        key: orNull(Schema.String),
        eventId: Count
      })
    )
  })),
  /** What speaks against it, in sentences; none once it is done. */
  warnings: Schema.Array(Schema.String)
})

const Calls = Schema.Array(Schema.Struct({ name: Schema.String, calls: Count }))

/**
 * What the retries of many instances would do, together.
 *
 * @category models
 * @since 0.3.0
 */
export const RetrySum = Schema.Struct({
  /** How many instances were looked at: the first ones, at most 50. */
  looked: Count,
  /** How many of these would be refused. */
  refused: Count,
  /** Activities that run again, with the same idempotency keys. */
  again: Calls,
  /** Activities whose calls are removed; their effects stay. */
  forgotten: Calls,
  /** What speaks against it, in sentences. */
  warnings: Schema.Array(Schema.String)
})

/**
 * An action on every instance that a search finds.
 *
 * @category models
 * @since 0.3.0
 */
export const Bulk = Schema.Struct({
  action: Schema.Literals(["retry", "interrupt", "terminate", "pause", "resume", "delete"]),
  search: Search,
  reason: Reason,
  /** Counts them, at most 10,000, and changes nothing. */
  dryRun: Schema.Boolean
})

/**
 * How far a bulk action has come. The last one is `Done`.
 *
 * @category models
 * @since 0.3.0
 */
export const BulkProgress = Schema.Struct({
  _tag: Schema.Literals(["Progress", "Done"]),
  /** Found by a dry run; otherwise changed. */
  done: Count,
  refused: Count,
  /** The first ids. */
  first: Schema.Array(Schema.String),
  /** The first refusals. */
  refusals: Schema.Array(
    Schema.Struct({ instanceId: Schema.String, code: Schema.String, message: Schema.String })
  ),
  /** Whether a dry run stopped counting. */
  isMore: Schema.Boolean,
  /** What a dry run of retries has found out, at its end; null otherwise. */
  retry: orNull(RetrySum),
  /** Why it stopped half way; null otherwise. */
  stopped: orNull(Schema.String)
})
