/**
 * Checks tasks, their attempts, and the messages of the outbox.
 */
import type { Excuses } from "./excuses.ts"
import type { ClientLine, EffectLine, TaskRun } from "./logs.ts"
import type { Process } from "./processes.ts"
import type { Store } from "./store.ts"

interface TaskRow {
  readonly id: string
  readonly name: string
  readonly label: string
  readonly kind: string | null
  readonly n: number
  readonly status: string
  readonly result: string | null
  readonly error: string | null
  /** Attempts that counted. */
  readonly counted: number
  readonly maxAttempts: number
}

/** An attempt with the real times of its claim and its end, and its outcome; null if it is completed. */
interface AttemptRow {
  readonly task: string
  readonly attempt: number
  readonly worker: string
  readonly from: number
  readonly until: number | null
  readonly outcome: string | null
}

/** Leases, milliseconds. */
const leases: Record<string, number> = { Once: 20_000 }
const shortLeaseMs = 3_000

export interface Report {
  readonly checks: ReadonlyArray<ReadonlyArray<string>>
  readonly summary: string
}

export const audit = async (options: {
  readonly store: Store
  readonly calls: ReadonlyArray<ClientLine>
  readonly effects: ReadonlyArray<EffectLine>
  readonly processes: ReadonlyArray<Process>
  readonly excuses: Excuses
}): Promise<Report> => {
  const { calls, effects, excuses, processes, store } = options
  const tasks = await store.sql<TaskRow>(
    `SELECT id, name, payload::jsonb ->> 'label' AS label, payload::jsonb ->> 'kind' AS kind,
       (payload::jsonb ->> 'n')::float8 AS n, status, result, error, attempt - uncounted AS counted,
       max_attempts AS "maxAttempts"
     FROM queue_tasks ORDER BY created_at`
  )
  const attempts = await store.sql<AttemptRow>(
    `SELECT c.task_id AS task, c.attempt, c.worker_id AS worker, c.at AS from, e.at AS until, e.outcome
     FROM chaos.attempts AS c
     LEFT JOIN chaos.attempts AS e ON e.task_id = c.task_id AND e.attempt = c.attempt AND e.outcome IS NOT NULL
     WHERE c.outcome IS NULL ORDER BY c.at`
  )
  const begins = effects.flatMap((line) => line.event === "taskBegin" ? [line] : [])
  const byId = new Map(tasks.map((task) => [task.id, task]))
  const lost = attempts.filter(({ outcome }) => outcome === "Lost")
  const unexcused = lost.filter(({ from, task, until, worker }) =>
    !excuses({
      of: "tasks",
      pid: pidOf(worker),
      lockMs: leases[byId.get(task)?.name ?? ""] ?? shortLeaseMs,
      from,
      until: until!
    })
  )
  const facts: Facts = { tasks, byId, attempts, begins, unexcused, processes }
  return {
    checks: [
      created(calls, tasks),
      outcomes(facts),
      losses(facts),
      endings(facts),
      runs(facts),
      pills(facts),
      await paid(store, tasks),
      await mail(store),
      await orders(store, calls, effects, tasks),
      await deadLetters(store)
    ],
    summary:
      `${tasks.length} tasks: ${
        ["Completed", "Dead", "Cancelled"].map((one) => `${tasks.filter(({ status }) => status === one).length} ${one}`)
          .join(", ")
      }; ${attempts.length} attempts, ${lost.length} of them lost; ` +
      `${effects.filter(({ event }) => event === "delivered").length} deliveries of messages`
  }
}

interface Facts {
  readonly tasks: ReadonlyArray<TaskRow>
  readonly byId: ReadonlyMap<string, TaskRow>
  readonly attempts: ReadonlyArray<AttemptRow>
  readonly begins: ReadonlyArray<TaskRun>
  /** Attempts that were lost although nothing had happened to their process. */
  readonly unexcused: ReadonlyArray<AttemptRow>
  readonly processes: ReadonlyArray<Process>
}

const pidOf = (worker: string) => Number(worker.split("/").at(-2))

const nameOf = ({ kind, label, name }: TaskRow) => `${name}${kind === null ? "" : ` (${kind})`} ${label}`

/** Each acknowledged task exists, and no creation has made two. */
const created = (calls: ReadonlyArray<ClientLine>, tasks: ReadonlyArray<TaskRow>) => {
  const labels = new Set(tasks.map(({ label }) => label))
  const twice = tasks.filter(({ label }, i) => tasks.findIndex((other) => other.label === label) !== i)
  return [
    ...[...new Set(calls.filter(({ call, event }) => call === "task" && event === "acknowledged").map(({ id }) => id))]
      .filter((id) => !labels.has(id)).map((id) => `the acknowledged task ${id} is lost`),
    ...twice.map((task) => `${nameOf(task)} exists twice`)
  ]
}

/** Each task has ended as its program determines. */
const outcomes = ({ attempts, tasks, unexcused }: Facts) =>
  tasks.flatMap((task) => {
    const { error, id, kind, n, name, result, status } = task
    const isLost = error?.includes(`"Lost"`) === true
    const isRight = name === "TaskPill"
      ? status === "Dead" && isLost
      : kind === "hopeless"
      ? status === "Dead" && error?.includes("hopeless") === true
      : (status === "Completed" && result === String(n + 1)) ||
        (kind === "raced" && status === "Cancelled") ||
        // Its only attempt was lost with its process.
        (name === "Once" && status === "Dead" && isLost && unexcused.every(({ task }) => task !== id))
    if (isRight) return []
    const history = attempts.filter(({ task }) => task === id).map(({ outcome }) => outcome ?? "–").join(", ")
    return [`${nameOf(task)} is ${status} with ${result ?? error} after the attempts ${history}`]
  })

/** An attempt is lost only if its process died or was suspended, or its lease could not be renewed. */
const losses = ({ begins, byId, processes, unexcused }: Facts) =>
  unexcused.map(({ attempt, from, task, until, worker }) => {
    const process = processes.find(({ pid }) => pid === pidOf(worker))
    const hasBegun = begins.some((line) => line.task === task && line.attempt === attempt)
    return `attempt ${attempt} of ${nameOf(byId.get(task)!)} was lost after ${
      Math.round(until! - from)
    } ms, although ` +
      `nothing had happened to ${process?.name}${hasBegun ? "" : "; its handler never ran"}`
  })

/** An attempt fails only if its program says so, and is given back only by a process that ends. */
const endings = ({ attempts, begins, byId, processes }: Facts) =>
  attempts.flatMap(({ attempt, outcome, task: id, until, worker }) => {
    const task = byId.get(id)!
    const process = processes.find(({ pid }) => pid === pidOf(worker))
    const hasBegun = begins.some((line) => line.task === id && line.attempt === attempt)
    const isRight = (() => {
      switch (outcome) {
        case "Failed":
          return task.kind === "hopeless" || (task.kind === "fails" && attempt <= 2)
        // Its transaction needs the store, and so has its faults.
        case "Died":
        case "Unavailable":
          return task.kind === "commits"
        case "GivenBack":
          return !hasBegun || Math.min(process?.endingAt ?? Infinity, process?.endedAt ?? Infinity) <= until!
        case "TimedOut":
          return false
        default:
          return true
      }
    })()
    return isRight ? [] : [`attempt ${attempt} of ${nameOf(task)} in ${process?.name} ended as ${outcome}`]
  })

/** A handler runs once for each attempt; a task with one attempt runs once, unless it was given back. */
const runs = ({ attempts, begins, byId }: Facts) => {
  const twice = begins.filter(({ attempt, task }, i) =>
    begins.findIndex((other) => other.task === task && other.attempt === attempt) !== i
  )
  const ran = (id: string) => begins.filter(({ task }) => task === id).length
  const givenBack = (id: string) =>
    attempts.filter(({ outcome, task }) => task === id && outcome === "GivenBack").length
  return [
    ...twice.map(({ attempt, label }) => `attempt ${attempt} of ${label} ran twice`),
    ...[...byId.values()].filter(({ id, maxAttempts }) => maxAttempts === 1 && ran(id) > 1 + givenBack(id))
      .map((task) => `${nameOf(task)} ran ${ran(task.id)} times, and has one attempt`)
  ]
}

/** Losses of a task that do not count, because another task may be the cause (docs/tasks.md). */
const uncountedLosses = 5

/** A pill is dead after at most its attempts, and the losses before it is alone. */
const pills = ({ begins, tasks }: Facts) =>
  tasks.filter(({ name }) => name === "TaskPill").flatMap((task) => {
    const killed = begins.filter((line) => line.task === task.id).length
    return [
      ...(killed >= 1 && killed <= task.maxAttempts + uncountedLosses
        ? []
        : [`${nameOf(task)} killed ${killed} processes`]),
      ...(task.counted <= task.maxAttempts ? [] : [`${nameOf(task)} had ${task.counted} attempts`])
    ]
  })

/** The rows of a transaction that completes a task are committed once. */
const paid = async (store: Store, tasks: ReadonlyArray<TaskRow>) => {
  const rows = await store.sql<{ label: string; times: number }>(
    "SELECT label, count(*)::integer AS times FROM chaos.paid GROUP BY label"
  )
  const times = new Map(rows.map(({ label, times }) => [label, times]))
  return tasks.filter(({ kind }) => kind === "commits").flatMap((task) => {
    const expected = task.status === "Completed" ? 1 : 0
    const found = times.get(task.label) ?? 0
    return found === expected ? [] : [`${nameOf(task)} is ${task.status}, and its rows were committed ${found} times`]
  })
}

/** No end of a task is carried from execution to execution, and none has reached an instance without being read. */
const mail = async (store: Store) => {
  const carried = await store.sql<{ id: string; execution: number }>(
    `SELECT instance_id AS id, execution_id::integer AS execution FROM history
     WHERE event_id = 1 AND event_data LIKE '%duroxide-prisma/task/%'`
  )
  return carried.map(({ execution, id }) =>
    `execution ${execution} of ${id} carries the end of a task, which is not read`
  )
}

/** A message is delivered if its transaction was committed, and only then; its effect is there once. */
const orders = async (
  store: Store,
  calls: ReadonlyArray<ClientLine>,
  effects: ReadonlyArray<EffectLine>,
  tasks: ReadonlyArray<TaskRow>
) => {
  const ids = async (text: string) => (await store.sql<{ id: string }>(text)).map(({ id }) => id)
  const placed = new Set(await ids("SELECT id FROM chaos.orders"))
  const parcels = await ids("SELECT order_id AS id FROM chaos.parcels")
  const shipped = new Set(parcels)
  const delivered = new Set(effects.flatMap((line) => line.event === "delivered" ? [line.order] : []))
  const labels = new Set(tasks.map(({ label }) => label))
  const done = (kind: ClientLine["call"]) =>
    calls.filter(({ call, event }) => call === kind && event === "acknowledged").map(({ id }) => id)
  const triedToPlace = new Set(calls.filter(({ call }) => call === "order").map(({ id }) => id))
  return [
    ...done("order").filter((id) => !placed.has(id)).map((id) => `the acknowledged order ${id} is lost`),
    ...[...placed].filter((id) => !triedToPlace.has(id)).map((id) => `${id} was rolled back, and is stored`),
    ...[...placed].filter((id) => !shipped.has(id)).map((id) =>
      `the message of ${id} was ${delivered.has(id) ? "delivered without its effect" : "never delivered"}`
    ),
    ...[...delivered].filter((id) => !placed.has(id)).map((id) =>
      `a message of ${id} was delivered, which is not stored`
    ),
    ...parcels.filter((id, i) => parcels.indexOf(id) !== i).map((id) => `${id} was shipped twice`),
    ...[...placed].filter((id) => !labels.has(`task-of-${id}`)).map((id) => `the task of ${id} is missing`),
    ...tasks.filter(({ label }) => label.startsWith("task-of-") && !placed.has(label.slice("task-of-".length)))
      .map((task) => `${nameOf(task)} is stored, although its transaction was not committed`)
  ]
}

/** No message was delivered too often or refused. */
const deadLetters = async (store: Store) => {
  const rows = await store.sql<{ queue: string; payload: string; attempts: number; error: string | null }>(
    "SELECT queue, payload::text, attempts, last_error AS error FROM queue_dead ORDER BY id"
  )
  return rows.map(({ attempts, error, payload, queue }) =>
    `a message of ${queue} is dead after ${attempts} deliveries (${error}): ${payload.slice(0, 100)}`
  )
}
