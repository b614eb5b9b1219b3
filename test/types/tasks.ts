// Deliberate mistakes that tsc must find.
// @effect-diagnostics missingEffectContext:off missingEffectError:off
/**
 * What does not compile with queues and tasks, and what is inferred: checked by `tsc`, never run.
 */
import { expectTypeOf } from "@effect/vitest"
import { Outbox } from "duroxide-prisma/outbox"
import { Transaction } from "duroxide-prisma/prisma"
import { Message } from "duroxide-prisma/queue"
import { Trigger } from "duroxide-prisma/recipes/triggers"
import { Task } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"

const Census = Task.make("Census", {
  payload: { reason: Schema.Literals(["cron", "webhook"]) },
  success: { rows: Schema.Number }
})
const Placed = Message.make("order_placed", { order_id: Schema.String })

const tx = {} as never
const outbox = Outbox.within(Transaction.make(tx, { schema: "public" }))

// @ts-expect-error the schema of the tables is never a guess
export const anywhere = () => Transaction.make(tx)

/** Payloads of triggers need no `as const`, and are checked. */
export const triggers = [
  Trigger.webhook("census", { secret: Redacted.make(""), task: Census, payload: () => ({ reason: "webhook" }) }),
  // @ts-expect-error: no reason
  Trigger.webhook("census", { secret: Redacted.make(""), task: Census, payload: () => ({}) })
]

export const handler = Effect.gen(function*() {
  const attempt = yield* Census.attempt
  yield* attempt.commit(tx, { rows: 1 })
  // @ts-expect-error: not a result of the task
  yield* attempt.commit(tx, { rows: "1" })
  return { rows: 1 }
})
expectTypeOf(handler).toExtend<Effect.Effect<{ readonly rows: number }, unknown, Task.Attempt>>()

export const messages = [
  outbox.add("orders", Placed, { order_id: "o-1" }),
  outbox.add("orders", Placed, { order_id: "o-1" }, { delay: "1 hour" }),
  // @ts-expect-error: a number
  outbox.add("orders", Placed, { order_id: 1 }),
  // @ts-expect-error: a field is missing
  outbox.add("orders", Placed, {}),
  outbox.add("orders", { kind: "of_another_program", n: 1 }, { delay: "1 hour" })
]

/** A task that an orchestration shares with others. */
export const shared = [
  Census.execute({ reason: "cron" }, { key: "today" }),
  // @ts-expect-error: not an option
  Census.execute({ reason: "cron" }, { delay: "1 hour" })
]
