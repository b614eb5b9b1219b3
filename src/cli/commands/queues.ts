import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import { age, count } from "../../model/shared/quantities.ts"
import { outboxOf } from "../../operating/backlogs.ts"
import { pauseOf } from "../../operating/work.ts"
import { OutboxDriver } from "../../outbox/OutboxDriver.ts"
import * as QueueReport from "../../prisma/shared/queueReport.ts"
import { Admin } from "../../provider/Admin.ts"
import type { QueueLoad } from "../../provider/AdminDriver.ts"
import type { Definition } from "../../provider/shared/unserved.ts"
import { Output } from "../internal/Output.ts"
import type { Style } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { table } from "../internal/table.ts"
import type { Column } from "../internal/table.ts"
import { servedBy } from "../internal/work.ts"
import { dead, redrive } from "./deadLetters.ts"
import { orphans } from "./orphans.ts"

export const queues = Command.make("queues", {}, () => Effect.provide(run, Store.layer)).pipe(
  Command.withShortDescription("Show what waits, and for how long"),
  Command.withDescription(
    "Show what waits, and for how long: messages to instances, activities, the queues of PgQueue, the outbox, tasks."
  ),
  Command.withExamples([
    { command: "duroxide-prisma queues", description: "Every queue that is not empty" }
  ]),
  Command.withSubcommands([dead, redrive, orphans])
)

// internal

const run = Effect.gen(function*() {
  const { answer, style } = yield* Output
  const admin = yield* Admin
  const { activities, orchestrations } = yield* admin.getQueueLoads
  const { targets } = yield* admin.getPauses
  const isPaused = (definition: Definition) => pauseOf(definition, targets) !== undefined
  const found = {
    orchestrations: orchestrations.map((one) => ({
      ...one,
      // Processes of Duroxide in Rust know only pauses of instances.
      paused: one.orchestration !== null && !one.isOfRust &&
        isPaused({ kind: "orchestration", name: one.orchestration, version: one.version, tag: null })
    })),
    activities: activities.map((one) => ({
      ...one,
      paused: isPaused({ kind: "activity", name: one.activity, version: null, tag: one.tag })
    })),
    queues: yield* QueueReport.readQueues,
    outbox: outboxOf(yield* (yield* OutboxDriver).readBacklog),
    tasks: yield* QueueReport.countTasks
  }
  const outboxes = found.outbox.waiting + found.outbox.later + found.outbox.failing === 0 ? [] : [found.outbox]
  const sections = [
    section(style, found.orchestrations, [
      { title: "MESSAGES TO", value: ({ orchestration }) => orchestration ?? "(no instance yet)" },
      { title: "VERSION", value: ({ version }) => version ?? "-" },
      ...depths,
      servedBy(style)
    ]),
    section(style, found.activities, [
      { title: "ACTIVITY", value: ({ activity }) => activity },
      { title: "TAG", value: ({ tag }) => tag ?? "-" },
      ...depths,
      servedBy(style)
    ]),
    section(style, found.queues, [
      { title: "QUEUE", value: ({ queue }) => queue },
      ...depths,
      alarming("DEAD", ({ dead }) => dead, style)
    ]),
    section(style, outboxes, [
      { title: "OUTBOX", value: () => "not sent" },
      number("WAITING", ({ waiting }) => waiting),
      number("LATER", ({ later }) => later),
      alarming("FAILING", ({ failing }) => failing, style),
      oldest
    ]),
    section(style, found.tasks, [
      { title: "TASK", value: ({ task }) => task },
      number("PENDING", ({ pending }) => pending),
      number("RUNNING", ({ running }) => running),
      number("COMPLETED", ({ completed }) => completed),
      alarming("DEAD", ({ dead }) => dead, style),
      number("CANCELLED", ({ cancelled }) => cancelled)
    ])
  ].filter((lines) => lines.length > 0)
  yield* answer({
    json: found,
    text: sections.length === 0 ? ["nothing waits"] : sections.flatMap((lines, i) => i === 0 ? lines : ["", ...lines])
  })
})

const section = <Row>(style: Style, rows: ReadonlyArray<Row>, columns: ReadonlyArray<Column<Row>>) =>
  rows.length === 0 ? [] : table(rows, columns, style)

const number = <Row>(title: string, value: (row: Row) => number): Column<Row> => ({
  title,
  align: "right",
  value: (row) => count(value(row))
})

const alarming = <Row>(title: string, value: (row: Row) => number, style: Style): Column<Row> => ({
  ...number(title, value),
  mark: (row, text) => value(row) > 0 ? style.red(text) : text
})

const oldest: Column<{ readonly oldestAgeMs: number | null }> = {
  title: "OLDEST",
  align: "right",
  value: ({ oldestAgeMs }) => oldestAgeMs === null ? "-" : age(oldestAgeMs)
}

const depths: ReadonlyArray<Column<QueueLoad>> = [
  number("WAITING", ({ waiting }) => waiting),
  number("RUNNING", ({ running }) => running),
  number("LATER", ({ later }) => later),
  oldest
]
