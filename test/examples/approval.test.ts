import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Completion } from "duroxide-prisma/recipes/completions"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import {
  Decide,
  Inbox,
  NoAnswer,
  NotYours,
  policy,
  Refused,
  Reimburse,
  RuntimeLive,
  Withdraw,
  Withdrawn
} from "../../examples/approval/approval.ts"
import * as Printed from "./printed.ts"

const day = 24 * 60 * 60 * 1000

const days = Effect.map(Clock.currentTimeMillis, (now) => (now - Date.UTC(2030, 0, 1)) / day)

const submit = (cents: number) =>
  Effect.flatMap(Client.Client, (client) => {
    const expense = { id: "e", employee: "Ada", purpose: "a laptop", cents }
    return client.start(Reimburse, { instanceId: "e", payload: { expense, policy } })
  })

const decide = (decision: typeof Decide.success.Type) =>
  Effect.flatMap(Inbox, (inbox) => Decide.complete(inbox.get("e")!, decision))

const stage = Effect.flatMap(Client.Client, (client) => client.status("e")).pipe(
  Effect.map((status) => status._tag === "NotFound" ? undefined : Option.getOrUndefined(status.customStatus))
)

/** Runs a test in virtual time, with the lines the activities print. */
const on = <A, E, R>(test: (lines: ReadonlyArray<string>) => Effect.Effect<A, E, R>) => {
  const { layer, lines } = Printed.make()
  return test(lines).pipe(Effect.provide(
    Completion.layer({ activities: [Decide] }).pipe(
      Layer.provideMerge(TestRuntime.layer(RuntimeLive)),
      Layer.provide(Completion.layerKeys([Redacted.make("k".repeat(32))])),
      Layer.provideMerge(Layer.succeed(Inbox, new Map())),
      Layer.provide(layer)
    )
  ))
}

describe("approval", () => {
  it.effect("small expenses are paid at once, without an approval", () =>
    on(Effect.fnUntraced(function*(lines) {
      const client = yield* Client.Client
      yield* submit(policy.limitCents)
      assert.deepStrictEqual(yield* client.wait(Reimburse, "e"), { approvedBy: "policy" })
      assert.deepStrictEqual(lines, ["paid Ada for a laptop"])
      assert.strictEqual(yield* days, 0)
    })))

  it.effect("the manager is reminded daily; after three days the director is asked, whose answer counts", () =>
    on(Effect.fnUntraced(function*(lines) {
      const client = yield* Client.Client
      yield* submit(policy.limitCents + 1)
      assert.strictEqual(yield* stage, "waiting for the manager")
      yield* TestRuntime.advance("2.5 days")
      assert.strictEqual(yield* stage, "waiting for the manager")
      yield* TestRuntime.advance("1 day")
      assert.strictEqual(yield* stage, "waiting for the director")
      yield* decide({ by: "the director", approved: true })
      assert.deepStrictEqual(yield* client.wait(Reimburse, "e"), { approvedBy: "the director" })
      assert.strictEqual(yield* stage, "paid, approved by the director")
      assert.strictEqual(yield* days, 3.5)
      assert.deepStrictEqual(lines, [
        "mail to the manager: Ada asks for a laptop",
        "mail to the manager: reminder: Ada waits for a laptop",
        "mail to the manager: reminder: Ada waits for a laptop",
        "mail to the director: Ada asks for a laptop",
        "paid Ada for a laptop"
      ])
    })))

  it.effect("the manager may answer late, also after a crash", () =>
    on(Effect.fnUntraced(function*() {
      const client = yield* Client.Client
      yield* submit(20_000)
      yield* TestRuntime.advance("5 days")
      yield* TestRuntime.crash
      yield* decide({ by: "the manager", approved: false })
      assert.deepStrictEqual(yield* Effect.flip(client.wait(Reimburse, "e")), new Refused({ by: "the manager" }))
      assert.strictEqual(yield* stage, "refused by the manager")
    })))

  it.effect("only who has asked may take it back", () =>
    on(Effect.fnUntraced(function*(lines) {
      const client = yield* Client.Client
      yield* submit(20_000)
      yield* TestRuntime.advance("1.5 days")
      assert.deepStrictEqual(yield* Effect.flip(client.request(Withdraw, "e", { by: "Bob" })), new NotYours())
      assert.strictEqual(yield* stage, "waiting for the manager")
      yield* client.request(Withdraw, "e", { by: "Ada" })
      assert.deepStrictEqual(yield* Effect.flip(client.wait(Reimburse, "e")), new Withdrawn())
      assert.strictEqual(yield* stage, "withdrawn")
      assert.strictEqual(yield* days, 1.5)
      assert.lengthOf(lines.filter((line) => line.startsWith("paid")), 0)
    })))

  it.effect("after seven days it stops waiting", () =>
    on(Effect.fnUntraced(function*(lines) {
      const client = yield* Client.Client
      yield* submit(20_000)
      assert.deepStrictEqual(yield* Effect.flip(client.wait(Reimburse, "e")), new NoAnswer())
      assert.strictEqual(yield* days, 7)
      assert.strictEqual(yield* stage, "no one answered")
      assert.deepStrictEqual(lines.slice(-1), ["mail to Ada: no one answered about a laptop"])
      assert.lengthOf(lines.filter((line) => line.includes("reminder")), 5)
    })))
})
