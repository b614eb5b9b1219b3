import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Signal } from "duroxide-prisma"
import { Task } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { process, start } from "./utils/taskProcess.ts"

const rounds = 60

const Slow = Task.make("Slow", { payload: Schema.Number, success: Schema.String })
const Begun = Activity.make("Begun", { payload: Schema.Number })
const Finish = Activity.make("Finish", { payload: Schema.Number })
// Lossy: the call of a task waits for a kept signal.
const Stop = Signal.make("Stop", { unawaited: "lost" })

const Round = { payload: Schema.Number }
const Interrupts = Orchestration.make("Interrupts", Round)
const Leaves = Orchestration.make("Leaves", Round)

const programs = Layer.mergeAll(
  // The call is interrupted in the turn that calls `Finish`, which the only slot runs before the cancellation.
  Interrupts.toLayer(Effect.fnUntraced(function*(round) {
    yield* Effect.raceFirst(
      Slow.execute(round),
      Effect.andThen(Begun.execute(round), Effect.forkDetach(Finish.execute(round), { startImmediately: true }))
    )
    if (round < rounds) return yield* Interrupts.continueAsNew(round + 1)
    yield* Stop.wait
  })),
  // The call ends with its execution, and the task in the next one.
  Leaves.toLayer(Effect.fnUntraced(function*(round) {
    if (round > 1) yield* Finish.execute(round - 1)
    if (round === rounds) return yield* Stop.wait
    yield* Effect.forkDetach(Slow.execute(round), { startImmediately: true })
    yield* Begun.execute(round)
    return yield* Leaves.continueAsNew(round + 1)
  }))
)

interface Last {
  readonly types: ReadonlyArray<string>
  readonly bytes: number
  readonly waiting: number
}

/** Runs all rounds, and reads the history of the last one. */
const last = Effect.fnUntraced(function*(
  definition: typeof Interrupts | typeof Leaves,
  { isLate, result }: { readonly isLate: boolean; readonly result: string }
) {
  const { sql, url } = yield* PgServer.database
  const ends = Array.from({ length: rounds + 1 }, () => Deferred.makeUnsafe<string>())
  const begun = new Set<number>()
  const statuses = (status: string) =>
    Effect.map(sql("SELECT FROM queue_tasks WHERE status = $1", [status]), ({ length }) => length)
  const { services } = yield* start(process({
    url,
    orchestrations: [Interrupts, Leaves],
    activities: [Begun, Finish],
    handlers: Layer.mergeAll(
      programs,
      Begun.toLayer((round) => waitUntil(Effect.sync(() => begun.has(round)))),
      Finish.toLayer((round) =>
        isLate
          ? Effect.andThen(
            Deferred.succeed(ends[round]!, result),
            waitUntil(Effect.map(Effect.orDie(statuses("Completed")), (count) => count === round))
          )
          : Effect.void
      )
    ),
    tasks: [Slow],
    taskHandlers: Slow.toLayer((round) =>
      Effect.andThen(Effect.sync(() => begun.add(round)), Deferred.await(ends[round]!))
    ),
    settings: { workerConcurrency: 1 }
  }))
  yield* Context.get(services, Client.Client).start(definition, { instanceId: "i", payload: 1 })
  yield* waitUntil(
    Effect.map(
      sql("SELECT FROM history WHERE execution_id = $1 AND event_type = 'ExternalSubscribed'", [rounds]),
      ({ length }) => length === 1
    )
  )
  // The end of the last cancellation has no turn of its own if the end of the task came with it.
  yield* waitUntil(Effect.map(sql("SELECT FROM orchestrator_queue"), ({ length }) => length === 0))
  const [row] = yield* sql<Last>(
    `SELECT array_agg(event_type ORDER BY event_type) AS types, sum(length(event_data))::int AS bytes,
       (SELECT count(*)::int FROM orchestrator_queue) AS waiting
     FROM history WHERE execution_id = $1`,
    [rounds]
  )
  const [signal] = yield* sql<{ readonly count: number }>(
    "SELECT count(*)::int AS count FROM history WHERE event_type = 'ExternalEventPersistent'"
  )
  return { ...row!, late: yield* statuses("Completed"), signals: signal!.count }
})

describe("Tasks: late ends", () => {
  it.live(
    "ends of calls that were interrupted leave nothing in an orchestration, however large they are",
    () =>
      Effect.scoped(Effect.gen(function*() {
        const result = "x".repeat(300_000)
        const none = yield* last(Interrupts, { isLate: false, result })
        const all = yield* last(Interrupts, { isLate: true, result })
        assert.deepInclude(none, { late: 0, signals: 0, waiting: 0 })
        assert.deepInclude(all, { late: rounds, signals: 0, waiting: 0 })
        assert.deepStrictEqual(all.types, none.types)
        // Times and ids differ in length.
        assert.closeTo(all.bytes, none.bytes, none.bytes / 20)
      }))
  )

  it.live(
    "ends that come after their execution leave nothing in the next one",
    () =>
      Effect.scoped(Effect.gen(function*() {
        const { bytes, late, signals, waiting } = yield* last(Leaves, { isLate: true, result: "x".repeat(300_000) })
        assert.deepStrictEqual({ late, signals, waiting }, { late: rounds - 1, signals: 0, waiting: 0 })
        assert.isBelow(bytes, 5000)
      }))
  )
})
