/**
 * An expense over a limit waits for a person: the manager is asked and reminded, after three days the director is asked
 * instead, and after seven days it gives up. Until then, who has asked may take the expense back. The custom status
 * shows the stage.
 */
import { Activity, Orchestration, Request, Runtime } from "duroxide-prisma"
import { External } from "duroxide-prisma/recipes/completions"
import { Console, Context, Duration, Effect, Layer, Option, Schedule, Schema } from "effect"

export const Expense = Schema.Struct({
  id: Schema.NonEmptyString,
  employee: Schema.String,
  purpose: Schema.String,
  cents: Schema.Int
})

export type Expense = typeof Expense.Type

/** Part of the payload: a program that read its settings from elsewhere could find others when it is replayed. */
export const Policy = Schema.Struct({
  limitCents: Schema.Int,
  remindEvery: Schema.DurationFromString,
  escalateAfter: Schema.DurationFromString,
  giveUpAfter: Schema.DurationFromString
})

export type Policy = typeof Policy.Type

export const policy: Policy = {
  limitCents: 10_000,
  remindEvery: Duration.days(1),
  escalateAfter: Duration.days(3),
  giveUpAfter: Duration.days(7)
}

export class Refused extends Schema.TaggedError<Refused>()("Refused", { by: Schema.String }) {}

export class NoAnswer extends Schema.TaggedError<NoAnswer>()("NoAnswer", {}) {}

export class Withdrawn extends Schema.TaggedError<Withdrawn>()("Withdrawn", {}) {}

export class NotYours extends Schema.TaggedError<NotYours>()("NotYours", {}) {}

/** Who has asked takes the expense back, and learns at once whether that counts. */
export const Withdraw = Request.make("Withdraw", { payload: { by: Schema.String }, error: NotYours })

/** A person's answer. It comes from outside, by the token that the handler gets. */
export const Decide = External.make("Decide", {
  payload: Expense,
  success: Schema.Struct({ by: Schema.String, approved: Schema.Boolean }),
  expiry: "30 days"
})

/** Tokens of open questions, by expense: the page that the mails link to has a form for each. */
export class Inbox extends Context.Service<Inbox, Map<string, string>>()("examples/approval/Inbox") {}

export const Notify = Activity.make("Notify", { payload: Schema.Struct({ to: Schema.String, text: Schema.String }) })

export const Pay = Activity.make("Pay", { payload: Expense })

export const Reimburse = Orchestration.make("Reimburse", {
  payload: Schema.Struct({ expense: Expense, policy: Policy }),
  success: Schema.Struct({ approvedBy: Schema.String }),
  error: Schema.Union([Refused, NoAnswer, Withdrawn])
})

const ReimburseLive = Reimburse.toLayer(Effect.fn(function*({ expense, policy }) {
  const approvedBy = expense.cents <= policy.limitCents ? "policy" : yield* approval(expense, policy)
  yield* Pay.execute(expense)
  yield* Orchestration.setCustomStatus(`paid, approved by ${approvedBy}`)
  return { approvedBy }
}))

const approval = Effect.fnUntraced(function*(expense: Expense, policy: Policy) {
  // One question for the whole time: the answer of a manager counts after the director was asked, too.
  const decision = yield* Effect.raceAllFirst([
    Effect.option(Decide.execute(expense)),
    Effect.as(ask(expense, policy), Option.none()),
    withdrawal(expense)
  ])
  if (Option.isNone(decision)) {
    yield* Orchestration.setCustomStatus("no one answered")
    yield* Notify.execute({ to: expense.employee, text: `no one answered about ${expense.purpose}` })
    return yield* new NoAnswer()
  }
  const { approved, by } = decision.value
  if (approved) return by
  yield* Orchestration.setCustomStatus(`refused by ${by}`)
  return yield* new Refused({ by })
})

const withdrawal = Effect.fnUntraced(function*({ employee }: Expense) {
  while (true) {
    const { answer, payload, refuse } = yield* Withdraw.take
    if (payload.by === employee) {
      yield* answer()
      yield* Orchestration.setCustomStatus("withdrawn")
      return yield* new Withdrawn()
    }
    yield* refuse(new NotYours())
  }
})

const ask = Effect.fnUntraced(function*(expense: Expense, policy: Policy) {
  yield* askOne("the manager", expense, policy).pipe(Effect.timeoutOption(policy.escalateAfter))
  yield* askOne("the director", expense, policy).pipe(
    Effect.timeoutOption(Duration.subtract(policy.giveUpAfter, policy.escalateAfter))
  )
})

/** Asks, and reminds until it is interrupted. */
const askOne = Effect.fnUntraced(function*(who: string, { employee, purpose }: Expense, { remindEvery }: Policy) {
  yield* Orchestration.setCustomStatus(`waiting for ${who}`)
  yield* Notify.execute({ to: who, text: `${employee} asks for ${purpose}` })
  yield* Effect.schedule(
    Notify.execute({ to: who, text: `reminder: ${employee} waits for ${purpose}` }),
    Schedule.spaced(remindEvery)
  )
})

const DecideLive = Decide.toLayer(({ id }, token) => Effect.map(Inbox, (inbox) => void inbox.set(id, token)))

// These print; yours would send a mail and a payment, and pass the idempotency key of `Activity.Call` on.
const NotifyLive = Notify.toLayer(({ text, to }) => Console.log(`  mail to ${to}: ${text}`))

const PayLive = Pay.toLayer(({ employee, purpose }) => Console.log(`  paid ${employee} for ${purpose}`))

export const RuntimeLive = Runtime.layer({ orchestrations: [Reimburse], activities: [Decide, Notify, Pay] }).pipe(
  Layer.provide([ReimburseLive, DecideLive, NotifyLive, PayLive])
)
