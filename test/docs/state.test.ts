import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Docs from "../utils/docs.ts"

// -----------------------------------------------------------------------------
// definitions and programs
// -----------------------------------------------------------------------------

const Points = Signal.make("Points", { payload: Schema.Int })

const Standing = KeyValue.make("standing", Schema.Struct({ points: Schema.Int, games: Schema.Int }))

const Season = Orchestration.make("Season", {
  payload: Schema.Struct({ gamesLeft: Schema.Int }),
  success: Schema.Int
})

const SeasonLive = Season.toLayer(Effect.fn(function*({ gamesLeft }) {
  const standing = Option.getOrElse(yield* Standing.get, () => ({ points: 0, games: 0 }))
  if (gamesLeft === 0) return standing.points
  yield* Orchestration.setCustomStatus(`game ${standing.games + 1}`)
  const points = yield* Points.wait
  yield* Standing.set({ points: standing.points + points, games: standing.games + 1 })
  return yield* Season.continueAsNew({ gamesLeft: gamesLeft - 1 })
}))

const Payment = Signal.make("Payment", { payload: Schema.Int })

const Collect = Orchestration.make("Collect", { payload: { amount: Schema.Int } })

const CollectLive = Collect.toLayer(Effect.fn(function*({ amount }) {
  const due = DateTime.add(yield* DateTime.now, { days: 14 })
  yield* Orchestration.setAttributes({ due })
  const paid = yield* Payment.wait
  yield* Orchestration.setAttributes({ amount: amount - paid, due: null })
}))

const Scores = Effect.gen(function*() {
  const scores: Record<string, number> = {}
  for (const player of (yield* KeyValue.getAll).keys()) {
    const score = yield* KeyValue.make(player, Schema.Int).get
    if (Option.isSome(score)) scores[player] = score.value
  }
  return scores
})

const Match = Orchestration.make("Match", { success: Schema.Record(Schema.String, Schema.Int) })

const MatchLive = Match.toLayer(Effect.fn(function*() {
  for (const [player, score] of [["Noor", 3], ["Ada", 5]] as const) {
    yield* KeyValue.make(player, Schema.Int).set(score)
    yield* Effect.sleep("1 minute")
  }
  return yield* Scores
}))

const Prepare = Activity.make("Prepare")

const Rounds = Orchestration.make("Rounds", {
  payload: Schema.Struct({ from: Schema.Int, to: Schema.Int })
})

const RoundsLive = Rounds.toLayer(Effect.fn(function*({ from, to }) {
  for (let round = from; round < Math.min(from + 100, to); round++) {
    yield* Prepare.execute()
    yield* Effect.sleep("1 minute")
  }
  if (from + 100 < to) return yield* Rounds.continueAsNew({ from: from + 100, to })
}))

const Marathon = Orchestration.make("Marathon", { payload: Schema.Int, success: Schema.Int })

const MarathonLive = Marathon.toLayer(Effect.fn(function*(done) {
  let rounds = done
  for (; rounds < 1_000; rounds++) {
    if ((yield* Orchestration.historySize) >= 1_000) return yield* Marathon.continueAsNew(rounds)
    yield* Prepare.execute()
  }
  return rounds
}))

const Slow = Orchestration.make("Slow")

const Leaver = Orchestration.make("Leaver", { payload: Schema.Boolean })

const LeaverLive = Leaver.toLayer(Effect.fn(function*(isFirst) {
  if (!isFirst) return yield* Effect.sleep("1 minute")
  yield* Effect.forkChild(Slow.executeWithId({ instanceId: "slow" }), { startImmediately: true })
  yield* Effect.forkChild(Prepare.execute(), { startImmediately: true })
  yield* Effect.sleep("1 second")
  return yield* Leaver.continueAsNew(false)
}))

const standing = (instanceId: string) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    const standing = yield* client.read(Standing, instanceId) // Option: nothing is set yet, or the instance is unknown
    const status = yield* client.status(instanceId)
    return status._tag === "Running"
      ? { standing, doing: Option.getOrElse(status.customStatus, () => "starting"), execution: status.executionId }
      : { standing, doing: status._tag }
  })

const untilGame = (instanceId: string, game: number) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    return yield* client.waitForValue(Standing, instanceId, { until: ({ games }) => games >= game })
  })

const follow = (instanceId: string, show: (status: string) => Effect.Effect<void>) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    let seen = 0
    while (true) {
      const { status, version } = yield* client.waitForStatus(instanceId, { after: seen, timeout: "1 hour" })
      if (Option.isSome(status)) yield* show(status.value)
      seen = version
    }
  }).pipe(Effect.catchTag("InstanceEnded", () => Effect.void))

const collect = Effect.gen(function*() {
  const client = yield* Client.Client
  const payload = { amount: 120 }
  const attributes = { customer: "c1", amount: 120 }
  yield* client.start(Collect, { instanceId: "invoice-7", payload, attributes })
  const found = yield* Stream.runCollect(Admin.stream({ attributes: { customer: "c1", amount: { from: 100 } } }))
  return found.map(({ attributes, instanceId }) => ({ instanceId, attributes }))
})

const prune = Effect.gen(function*() {
  const admin = yield* Admin.Admin
  return yield* admin.pruneExecutions("rounds", { keepLast: 2 })
})

// -----------------------------------------------------------------------------
// tests
// -----------------------------------------------------------------------------

const virtually = Effect.provide(TestRuntime.layer(
  Runtime.layer({ orchestrations: [Season, Match, Collect, Rounds, Marathon, Slow, Leaver], activities: [Prepare] })
    .pipe(
      Layer.provide([
        SeasonLive,
        MatchLive,
        CollectLive,
        RoundsLive,
        MarathonLive,
        LeaverLive,
        Slow.toLayer(() => Effect.sleep("1 hour")),
        Prepare.toLayer(Effect.fn(function*() {
          const { instanceId } = yield* Activity.Call
          if (instanceId === "leaver") yield* Effect.sleep("1 hour")
        }))
      ])
    )
))

const score = (points: number) => Effect.flatMap(Client.Client, (client) => client.send(Points, "season", points))

describe("docs/signals.md, State", () => {
  it("its examples are those tested here", () => {
    const here = Docs.withoutIndentation(Docs.read("test/docs/state.test.ts"))
    const examples = Docs.blocks(Docs.section("docs/signals.md", "State"), "ts")
    assert.lengthOf(examples, 11)
    for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  })

  it.effect("all values of the instance are listed in the order of their keys", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const scores = yield* client.execute(Match, { instanceId: "match" })
      assert.deepStrictEqual(Object.entries(scores), [["Ada", 5], ["Noor", 3]])
    }).pipe(virtually))

  it.effect("values, status and unread messages are kept; all can be read while it runs and afterwards", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      assert.deepStrictEqual(yield* standing("season"), { standing: Option.none(), doing: "NotFound" })
      yield* client.start(Season, { instanceId: "season", payload: { gamesLeft: 3 } })
      assert.deepStrictEqual(yield* standing("season"), { standing: Option.none(), doing: "game 1", execution: 1 })
      yield* Effect.all([score(3), score(1)], { concurrency: "unbounded" })
      assert.deepStrictEqual(yield* standing("season"), {
        standing: Option.some({ points: 4, games: 2 }),
        doing: "game 3",
        execution: 3
      })
      yield* score(0)
      yield* untilGame("season", 3)
      assert.strictEqual(yield* client.wait(Season, "season"), 4)
      assert.deepStrictEqual(yield* standing("season"), {
        standing: Option.some({ points: 4, games: 3 }),
        doing: "Completed"
      })
      const status = yield* client.status("season")
      assert.deepStrictEqual(status._tag === "Completed" && status.customStatus, Option.some("game 3"))
    }).pipe(virtually))

  it.effect("attributes lead to an instance", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const admin = yield* Admin.Admin
      const due = DateTime.add(yield* DateTime.now, { days: 14 })
      const found = yield* collect
      assert.deepStrictEqual(found, [{ instanceId: "invoice-7", attributes: { amount: 120, customer: "c1", due } }])
      yield* client.send(Payment, "invoice-7", 50)
      yield* client.wait(Collect, "invoice-7")
      const { attributes } = yield* admin.getInstanceInfo("invoice-7")
      assert.deepStrictEqual(attributes, { amount: 70, customer: "c1" })
      assert.deepStrictEqual((yield* admin.list({ attributes: { amount: { from: 100 } } })).instances, [])
    }).pipe(virtually))

  it.effect("a reader follows the statuses of an instance until it ends", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const seen: Array<string> = []
      yield* client.start(Season, { instanceId: "season", payload: { gamesLeft: 2 } })
      const following = yield* Effect.forkChild(follow("season", (status) => Effect.sync(() => void seen.push(status))))
      yield* score(1)
      yield* score(1)
      yield* Fiber.join(following)
      assert.strictEqual(seen.at(-1), "game 2")
    }).pipe(virtually))

  it.effect("histories are bounded by continuing as new, and can be pruned", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const admin = yield* Admin.Admin
      assert.strictEqual(yield* client.execute(Marathon, { instanceId: "marathon", payload: 0 }), 1_000)
      assert.deepStrictEqual(yield* admin.listExecutions("marathon"), [1, 2])
      yield* client.execute(Rounds, { instanceId: "rounds", payload: { from: 0, to: 250 } })
      const executions = yield* admin.listExecutions("rounds")
      assert.deepStrictEqual(executions, [1, 2, 3])
      assert.strictEqual((yield* admin.getExecutionInfo("rounds", 1)).eventCount, 402)
      assert.strictEqual((yield* prune).executionsDeleted, 1)
      assert.deepStrictEqual(yield* admin.listExecutions("rounds"), [2, 3])
    }).pipe(virtually))

  it.effect("activities under way end with the execution, children continue", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.execute(Leaver, { instanceId: "leaver", payload: true })
      const events = (yield* TestRuntime.history("leaver")).map(({ _tag }) => _tag)
      assert.include(events, "ActivityCancelRequested")
      assert.notInclude(events, "SubOrchestrationCancelRequested")
      assert.strictEqual((yield* TestRuntime.runToEnd("slow"))._tag, "Completed")
    }).pipe(virtually))
})
