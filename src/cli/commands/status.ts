import * as Command from "effect/cli/Command"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { age, count, counted } from "../../model/shared/quantities.ts"
import * as Health from "../../observability/Health.ts"
import { outboxOf, tasksOf } from "../../operating/backlogs.ts"
import * as Counts from "../../operating/counts.ts"
import * as Work from "../../operating/work.ts"
import * as QueueReport from "../../prisma/shared/queueReport.ts"
import * as ServerReport from "../../prisma/shared/serverReport.ts"
import { Admin } from "../../provider/Admin.ts"
import type { Backlog } from "../../provider/Backlog.ts"
import { definitionOf } from "../../provider/shared/unserved.ts"
import { RuntimeConfig } from "../../RuntimeConfig.ts"
import { CommandError } from "../internal/failure.ts"
import { pauseJson, shownPause } from "../internal/instances.ts"
import { Output } from "../internal/Output.ts"
import { Settings } from "../internal/settings.ts"
import * as Store from "../internal/store.ts"
import { bytes, fields } from "../internal/table.ts"
import type { Field } from "../internal/table.ts"

export const status = Command.make("status", {}, () => run).pipe(
  Command.withShortDescription("Show whether the store is migrated, healthy and worked on"),
  Command.withDescription(
    "Show whether the store is migrated, healthy and worked on. Exits with 1 if migrations are missing, or if work has " +
      "waited for longer than the recovery from a crash takes."
  )
)

// internal

const run = Effect.gen(function*() {
  const { address, schema } = yield* (yield* Settings).target
  // First, and apart: its failure says what to do, and without tables there is nothing else to show.
  const migrations = yield* Store.verify().pipe(
    Effect.as("up to date"),
    Effect.catchReason(
      "MigrationError",
      "SchemaAhead",
      ({ unknown }) => Effect.succeed(`${unknown.length} of a newer release`)
    )
  )
  const store = Layer.provideMerge(Health.layerTasks(), Store.layer)
  yield* Effect.provide(report(address, schema, migrations), store)
})

const report = Effect.fnUntraced(function*(address: string, schema: string, migrations: string) {
  const { answer, style } = yield* Output
  const admin = yield* Admin
  const server = yield* ServerReport.read
  const counts = yield* admin.count()
  const instances = Counts.grouped(counts, ({ status }) => status)
  const beforeStart = yield* admin.countMessagesBeforeStart
  const works = Work.ofLoads(yield* admin.getQueueLoads)
  const unserved = works.filter(Work.isUnserved)
  const retrying = yield* admin.list({ isRetrying: true, limit: mostRetrying })
  const deadLetters = yield* QueueReport.countDeadByQueue
  const deadProcesses = (yield* admin.listProcesses).filter(({ isAlive }) => !isAlive).length
  const pauses = yield* admin.getPauses
  const nowMs = yield* Clock.currentTimeMillis
  const health = yield* Health.check
  const { backlog, queues, status } = health
  const problems = Work.explainProblems(health, yield* RuntimeConfig, works, pauses.targets)
  const total = Counts.sum(counts)
  yield* answer({
    json: {
      address,
      schema,
      migrations,
      server: { version: server.version, bytes: server.bytes },
      instances: Object.fromEntries(instances.map((one) => [one.key, one.instances])),
      instancesAreEstimates: total.isEstimate,
      blocked: backlog?.blockedInstances ?? null,
      paused: { targets: pauses.targets.map(pauseJson), instances: pauses.instances },
      messages: backlog === null ? null : messagesOf(backlog, beforeStart),
      activities: backlog === null ? null : activitiesOf(backlog),
      limited: backlog === null
        ? null
        : { activities: backlog.limitedActivities, instances: backlog.limitedInstances },
      unserved: unserved.map(({ servedBy: _servedBy, ...work }) => work),
      retrying: { instances: retrying.instances.length, isMore: retrying.next !== null },
      deadLetters,
      deadProcesses,
      tasks: queues === null ? null : tasksOf(queues.tasks),
      outbox: queues === null ? null : outboxOf(queues.outbox),
      listening: {
        processes: server.listening,
        orchestrations: server.orchestrators,
        activities: server.workers
      },
      health: { status, problems }
    },
    text: fields([
      ["database", `${address}, schema ${schema}`],
      ["server", `PostgreSQL ${server.version}`],
      ["migrations", migrations],
      ["size", bytes(server.bytes)],
      [
        "instances",
        total.instances === 0
          ? "none"
          : `${Counts.shown(total)}: ${instances.map((one) => `${Counts.shown(one)} ${one.key}`).join(", ")}`
      ],
      ...pauses.targets.map((pause): Field => ["paused", shownPause(pause, nowMs), style.red]),
      ...(pauses.instances === 0 ? [] : [
        [
          "paused",
          `${counted(pauses.instances, "instance", "instances")}; see list --status paused`,
          style.red
        ] as const
      ]),
      ...(backlog === null || backlog.blockedInstances === 0 ? [] : [
        [
          "blocked",
          `${counted(backlog.blockedInstances, "instance", "instances")}; see list --status blocked`,
          style.red
        ] as const
      ]),
      ...(backlog === null ? [] : waiting(backlog, beforeStart)),
      ...(backlog === null ? [] : limited(backlog)),
      ...(unserved.length === 0 ? [] : [["unserved", shownUnserved(unserved), style.red] as const]),
      ...(retrying.instances.length === 0 ? [] : [
        [
          "retrying",
          `${counted(retrying.instances.length, "instance")}${retrying.next === null ? "" : " or more"}; ` +
          "see list --retrying"
        ] as const
      ]),
      ...(queues === null ? [] : waitingInQueues(queues)),
      ...deaths(queues, deadLetters, deadProcesses).map((text): Field => ["dead", text, style.red]),
      [
        "listening",
        server.listening === 0
          ? "no process; those that poll are not seen"
          : `${count(server.listening)} (${count(server.orchestrators)} for orchestrations, ` +
            `${count(server.workers)} for activities)`
      ],
      [
        "health",
        status === "healthy" && backlog !== null && backlog.blockedInstances > 0
          ? "healthy, apart from blocked instances"
          : status,
        status === "healthy" ? style.green : style.red
      ]
    ], style)
  })
  if (status !== "healthy") {
    return yield* new CommandError({ code: "Unhealthy", message: problems.join("; "), exit: "no" })
  }
})

/** Definitions that are listed for people. */
const mostUnserved = 3

/** Instances that are counted, among the 1,000 that one statement looks at. */
const mostRetrying = 100

const deaths = (
  queues: Health.TaskReport | null,
  letters: ReadonlyArray<QueueReport.DeadLetters>,
  processes: number
): ReadonlyArray<string> => {
  const tasks = queues?.tasks.dead ?? 0
  return [
    ...(tasks === 0 ? [] : [`${counted(tasks, "task")}; see tasks --status dead`]),
    ...letters.map(({ dead, queue }) => `${counted(dead, "dead letter")} of queue ${queue}; see queues dead ${queue}`),
    ...(processes === 0 ? [] : [`${counted(processes, "process", "processes")} within a day; see processes`])
  ]
}

const shownUnserved = (unserved: ReadonlyArray<Work.Work>): string => {
  const shown = unserved.slice(0, mostUnserved).map((work) => {
    const waiting = counted(work.waiting, "waits", "wait")
    return `${definitionOf(work)}: ${waiting}${
      work.oldestAgeMs === null ? "" : `, the oldest for ${age(work.oldestAgeMs)}`
    }`
  })
  const others = unserved.length - shown.length
  return [...shown, ...(others === 0 ? [] : [`${count(others)} more, see queues`])].join("; ")
}

const limited = ({ limitedActivities, limitedInstances }: Backlog): ReadonlyArray<Field> => {
  const shown = [
    ...(limitedActivities === 0 ? [] : [counted(limitedActivities, "activity", "activities")]),
    ...(limitedInstances === 0 ? [] : [counted(limitedInstances, "start")])
  ]
  return shown.length === 0
    ? []
    : [[
      "limited",
      `${shown.join(" and ")} ${limitedActivities + limitedInstances === 1 ? "waits" : "wait"} for limits; see limits`
    ]]
}

/** Names and nulls are those of `queues`. */
const messagesOf = ({ orchestrator: { depth, oldestAgeMs } }: Backlog, beforeStart: number) => ({
  waiting: depth,
  oldestAgeMs,
  beforeStart
})

const activitiesOf = ({ worker }: Backlog) =>
  worker.map(({ depth, oldestAgeMs, tag }) => ({ tag, waiting: depth, oldestAgeMs }))

const waitingInQueues = ({ outbox, tasks }: Health.TaskReport): ReadonlyArray<Field> => [
  [
    "tasks",
    tasks.pending + tasks.running + tasks.dead === 0
      ? "none"
      : `${count(tasks.pending)} pending, ${count(tasks.running)} running, ${count(tasks.dead)} dead`
  ],
  [
    "outbox",
    outbox.waiting + outbox.failing === 0
      ? "nothing to send"
      : `${count(outbox.waiting)} to send, ${count(outbox.failing)} failing, the oldest for ${age(outbox.oldestAgeMs)}`
  ]
]

const waiting = ({ orchestrator, worker }: Backlog, beforeStart: number): ReadonlyArray<Field> => {
  const shown = (depth: number, oldestAgeMs: number | null, none = "none waits") =>
    depth === 0 || oldestAgeMs === null
      ? none
      : `${counted(depth, "waits", "wait")}, the oldest for ${age(oldestAgeMs)}`
  const messages = (...[depth, oldestAgeMs]: [number, number | null]) =>
    beforeStart === 0
      ? shown(depth, oldestAgeMs)
      : `${shown(depth, oldestAgeMs, "none can be claimed")}; ` +
        `${counted(beforeStart, "waits for its instance", "wait for their instance")} to start`
  const ages = worker.flatMap(({ oldestAgeMs }) => oldestAgeMs ?? [])
  return [
    ["messages", messages(orchestrator.depth, orchestrator.oldestAgeMs)],
    [
      "activities",
      shown(worker.reduce((sum, { depth }) => sum + depth, 0), ages.length === 0 ? null : Math.max(...ages))
    ]
  ]
}
