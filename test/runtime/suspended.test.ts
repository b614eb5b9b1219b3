/**
 * A process that was suspended: the wall clock and that of the store have continued, its monotonic clock has stood
 * still.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { Database } from "../../src/prisma/Database.ts"
import * as App from "../utils/app.ts"
import { changed } from "../utils/clock.ts"
import { PgServer } from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Step = Activity.make("Step", { payload: Schema.Boolean })
const Quick = Orchestration.make("Quick")
const Sleeper = Orchestration.make("Sleeper")
const Later = Orchestration.make("Later", { payload: Schema.Boolean })

/** An application; `suspend` lets its monotonic clock lose that time. */
const open = <A, E>(
  test: (suspend: (ms: number) => void) => Effect.Effect<A, E, Client.Client | Database | PgServer>
) =>
  Effect.gen(function*() {
    let lostMs = 0
    const clock = yield* Clock.Clock
    const suspend = (ms: number) => void (lostMs += ms)
    const monotonic = () => clock.monotonicTimeNanosUnsafe() - BigInt(lostMs) * 1_000_000n
    const runtime = Runtime.layer({ orchestrations: [Quick, Sleeper, Later], activities: [Step] }).pipe(Layer.provide([
      // The time really passes in the store, since a turn never happens before the last event.
      Step.toLayer((suspends) =>
        suspends ? Effect.andThen(Effect.sleep("4 seconds"), Effect.sync(() => suspend(4_000))) : Effect.void
      ),
      Quick.toLayer(() => Effect.void),
      Sleeper.toLayer(() => Effect.sleep("10 minutes")),
      Later.toLayer((suspends) => Effect.andThen(Step.execute(suspends), Effect.sleep("10 minutes")))
    ]))
    return yield* test(suspend).pipe(
      Effect.provide(App.layer(runtime, { runtime: { verifyReplay: false } })),
      Effect.provideService(
        Clock.Clock,
        changed(clock, { monotonicTimeNanosUnsafe: monotonic, monotonicTimeNanos: Effect.sync(monotonic) })
      )
    )
  })

/** By how many seconds the timer of an instance, of 600 seconds, is due too early; waits until there is one. */
const early = Effect.fnUntraced(function*(instanceId: string) {
  const { sql } = yield* PgServer
  const timer = sql(
    `SELECT 600 - extract(epoch FROM q.visible_at - h.created_at)::float8 AS early FROM orchestrator_queue AS q
     JOIN history AS h ON h.instance_id = q.instance_id AND h.event_type = 'TimerCreated'
     WHERE q.instance_id = $1 AND q.work_item LIKE '{"TimerFired"%'`,
    [instanceId]
  )
  yield* waitUntil(Effect.map(timer, (rows) => rows.length === 1))
  return Number((yield* timer)[0]!.early)
})

const claimedTurns = Effect.flatMap(
  Database,
  ({ statementCounts }) => Effect.map(statementCounts, (counts) => counts["ackOrchestrationItems"] ?? 0)
)

describe("after a suspend", () => {
  it.live("a timer of a first turn is not early, and the next first turn needs no claim", () =>
    open((suspend) =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.execute(Quick, { instanceId: "quick" })
        suspend(20_000)
        yield* client.start(Sleeper, { instanceId: "first" })
        assert.isBelow(yield* early("first"), 3)
        const before = yield* claimedTurns
        yield* client.start(Sleeper, { instanceId: "second" })
        assert.isBelow(yield* early("second"), 3)
        assert.strictEqual(yield* claimedTurns, before)
      })
    ))

  it.live("a timer of an optimistic turn is not early, and the next optimistic turn needs no claim", () =>
    open(() =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.execute(Quick, { instanceId: "quick" })
        yield* client.start(Later, { instanceId: "first", payload: true })
        assert.isBelow(yield* early("first"), 3)
        const before = yield* claimedTurns
        yield* client.start(Later, { instanceId: "second", payload: false })
        assert.isBelow(yield* early("second"), 3)
        assert.strictEqual(yield* claimedTurns, before)
      })
    ))
})
