import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { age, count, counted } from "../../model/shared/quantities.ts"
import { isoTime } from "../../operating/times.ts"
import * as PgQueue from "../../prisma/PgQueue.ts"
import * as QueueReport from "../../prisma/shared/queueReport.ts"
import * as Bulk from "../internal/bulk.ts"
import { Output } from "../internal/Output.ts"
import * as Paging from "../internal/paging.ts"
import * as Progress from "../internal/Progress.ts"
import * as Store from "../internal/store.ts"
import { fitted, oneLine } from "../internal/table.ts"

const queue = Argument.String("queue").pipe(Argument.withDescription("Name of the queue"))

export const dead = Command.make("dead", {
  queue,
  limit: Paging.limitOf("messages")
}, (flags) => Effect.provide(runDead(flags), Store.layer)).pipe(
  Command.withShortDescription("List the dead letters of a queue"),
  Command.withDescription(
    "List the dead letters of a queue, those first that a redrive would take first, without their payloads."
  ),
  Command.withExamples([{ command: "duroxide-prisma queues dead mails" }])
)

export const redrive = Command.make(
  "redrive",
  { queue, ...Bulk.flags },
  (flags) => Effect.provide(Effect.scoped(runRedrive(flags)), Store.layerForChanges)
).pipe(
  Command.withShortDescription("Put the dead letters of a queue back into it"),
  Command.withDescription("Put the dead letters of a queue back into it, the oldest first, with no delivery counted."),
  Command.withExamples([
    {
      command: "duroxide-prisma queues redrive mails --limit 10",
      description: "Ten, to look at before the others follow"
    }
  ])
)

// internal

const runDead = Effect.fnUntraced(function*({ limit, queue }: { readonly queue: string; readonly limit: number }) {
  const { answer, columns, style } = yield* Output
  const found = yield* QueueReport.listDead(queue, limit)
  const all = yield* QueueReport.countDead(queue)
  const nowMs = yield* Clock.currentTimeMillis
  const others = all - found.length
  if (all === 0) yield* warnIfUnknown(queue)
  yield* answer({
    json: {
      queue,
      dead: all,
      messages: found.map(({ diedAtMs, ...message }) => ({ ...message, diedAt: isoTime(diedAtMs) }))
    },
    text: found.length === 0
      ? [oneLine(`no dead letters in ${queue}`)]
      : [
        ...fitted(
          found,
          [
            { title: "ID", align: "right", value: ({ id }) => id },
            { title: "KIND", value: ({ kind }) => kind ?? "-" },
            { title: "DELIVERIES", align: "right", value: ({ attempts }) => count(attempts) },
            { title: "DIED", value: ({ diedAtMs }) => `${age(nowMs - diedAtMs)} ago` },
            { title: "REASON", shrinks: "end", value: ({ reason }) => reason ?? "delivered too often" }
          ],
          style,
          columns
        ),
        ...(others > 0 ? ["", `and ${counted(others, "other", "others")}`] : [])
      ]
  })
})

/** Queues are made by their first message: the name may be wrong. */
const warnIfUnknown = Effect.fnUntraced(function*(name: string) {
  const queues = (yield* QueueReport.readQueues).map(({ queue }) => queue)
  if (queues.includes(name)) return
  const known = queues.length === 0 ? "" : `; these have some: ${queues.slice(0, 10).join(", ")}`
  yield* (yield* Output).warn(oneLine(`no queue ${name} has messages${known}`))
})

/** Messages that one statement takes. */
const mostAtOnce = 500

const runRedrive = Effect.fnUntraced(function*(
  { dryRun, limit, queue: name, yes }: Bulk.Flags & { readonly queue: string }
) {
  const { answer } = yield* Output
  const words = { verb: "redrive", done: "redriven", noun: "message" } as const
  if (!yes && !dryRun) yield* Bulk.canConfirm
  const queue = yield* PgQueue.make({ queues: { [name]: {} } })
  const matched = Math.min(yield* QueueReport.countDead(name), Option.getOrElse(limit, () => Number.POSITIVE_INFINITY))
  const json = { action: words.done, queue: name, matched }
  if (matched === 0) yield* warnIfUnknown(name)
  if (matched === 0 || dryRun) {
    return yield* answer({
      json: { ...json, done: 0, dryRun },
      text: [
        oneLine(
          matched === 0 ? `no dead letters in ${name}` : `would redrive ${counted(matched, "message")} of ${name}`
        )
      ]
    })
  }
  yield* Bulk.confirm(`redrive ${counted(matched, "message")} of ${name}`, yes)
  const progress = yield* Progress.make
  let done = 0
  let isOpen = false
  const next = Effect.gen(function*() {
    isOpen = true
    const moved = yield* queue.redrive(name, { limit: Math.min(mostAtOnce, matched - done) })
    isOpen = false
    done += moved
    yield* progress.report(`redriven ${count(done)} of ${count(matched)} messages`, { done })
    return moved
  })
  // What dies again meanwhile is not taken again.
  yield* Bulk.stopping(
    Effect.repeat(next, { until: (moved) => moved === 0 || done >= matched }),
    words,
    () => ({ done, open: isOpen ? Math.min(mostAtOnce, matched - done) : 0 })
  )
  yield* answer({
    json: { ...json, done, dryRun },
    text: [oneLine(`redriven ${counted(done, "message")} of ${name}`)]
  })
})
