import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Request, Runtime, Signal } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { keptAnswers, keptMs, mostAnswers } from "../../src/model/shared/requestSignal.ts"
import { maxValueBytes } from "../../src/replay/limits.ts"
import * as Docs from "../utils/docs.ts"

const Confirm = Activity.make("Confirm", { payload: Schema.String })
const Evening = Signal.make("Evening")
const Guests = KeyValue.make("guests", Schema.Int)

const Reserve = Request.make("Reserve", {
  payload: { guest: Schema.String, seats: Schema.Int },
  success: Schema.Struct({ left: Schema.Int }),
  error: Schema.Struct({ reason: Schema.String })
})

const table = Effect.fn(function*(seats: number) {
  let left = seats
  yield* Reserve.serve(
    Effect.fn(function*({ guest, seats }) {
      if (seats > left) return yield* Effect.fail({ reason: `${left} left` })
      left -= seats
      yield* Confirm.execute(guest)
      return { left }
    }),
    { validate: ({ seats }) => seats > 0 ? Result.succeed(undefined) : Result.fail({ reason: "for no one" }) }
  )
  yield* Evening.wait
  return left
})

const once = Effect.gen(function*() {
  const { answer, payload, refuse } = yield* Reserve.take
  const confirmed = yield* Effect.timeoutOption(Confirm.execute(payload.guest), "1 hour")
  if (confirmed._tag === "None") yield* refuse({ reason: "the guest does not answer" })
  else yield* answer({ left: 0 })
})

const reserve = Effect.gen(function*() {
  const client = yield* Client.Client
  return yield* client.request(Reserve, "table-4", { guest: "Ada", seats: 2 }, {
    requestId: "reservation-17", // asked again, it has the same answer
    timeout: "10 seconds"
  })
})

const watch = (after?: string) =>
  Stream.unwrap(Effect.map(Client.Client, (client) => client.watch("table-4", { after, keys: [Guests] })))

const Table = Orchestration.make("Table", { payload: Schema.Int, success: Schema.Int })
const Once = Orchestration.make("Once")

const layer = TestRuntime.layer(
  Runtime.layer({ orchestrations: [Table, Once], activities: [Confirm] }).pipe(Layer.provide([
    Table.toLayer((seats) => Effect.andThen(Guests.set(seats), table(seats))),
    Once.toLayer(() => once),
    Confirm.toLayer((guest) => guest === "no one" ? Effect.sleep("2 hours") : Effect.void)
  ]))
)

describe("docs/requests.md", () => {
  const page = Docs.read("docs/requests.md")

  it("its examples are those tested here", () => {
    const here = Docs.withoutIndentation(Docs.read("test/docs/requests.test.ts"))
    const examples = Docs.blocks(page, "ts")
    assert.lengthOf(examples, 5)
    for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  })

  it("its limits are those of the code", () => {
    const text = Docs.unwrapped(page)
    assert.include(text, `at most ${maxValueBytes.toLocaleString("en")} bytes`)
    assert.include(
      text,
      `its newest ${keptAnswers} answers, and all answers of the last minute, up to ${mostAnswers.toLocaleString("en")}`
    )
    assert.strictEqual(keptMs, 60_000)
  })

  it.effect("a table is reserved once, refused when it is full, and for no one", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Table, { instanceId: "table-4", payload: 3 })
      assert.deepStrictEqual([yield* reserve, yield* reserve], [{ left: 1 }, { left: 1 }])
      const ask = (seats: number) => Effect.flip(client.request(Reserve, "table-4", { guest: "Bo", seats }))
      assert.deepStrictEqual([yield* ask(2), yield* ask(0)], [{ reason: "1 left" }, { reason: "for no one" }])
      yield* client.send(Evening, "table-4")
      assert.strictEqual(yield* client.wait(Table, "table-4"), 1)
      const events = yield* Stream.runCollect(watch())
      assert.deepStrictEqual(events.map(({ _tag }) => _tag), ["Value", "Ended"])
      const rest = yield* Stream.runCollect(watch(events[0]!.cursor))
      assert.deepStrictEqual(rest.map(({ _tag }) => _tag), ["Ended"])
    }).pipe(Effect.provide(layer)))

  it.effect("a question that was taken is answered or refused by its program", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      for (const [instanceId, guest] of [["a", "Ada"], ["b", "no one"]] as const) {
        yield* client.start(Once, { instanceId })
        const answer = yield* Effect.result(client.request(Reserve, instanceId, { guest, seats: 1 }))
        assert.deepStrictEqual(
          Result.isSuccess(answer) ? answer.success : answer.failure,
          guest === "Ada" ? { left: 0 } : { reason: "the guest does not answer" }
        )
      }
    }).pipe(Effect.provide(layer)))
})
