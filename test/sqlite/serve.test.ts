/**
 * Instances that Duroxide began in a SQLite file, continued by a runtime of this package.
 */
import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as SqliteImport from "../../src/sqlite/SqliteImport.ts"
import * as App from "../utils/app.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Files from "./files.ts"

const Answer = Signal.make("Answer", { payload: Schema.String, unawaited: "lost" })
const Charge = Activity.make("Charge", { payload: Schema.Int, success: Schema.String })
const Errand = Orchestration.make("Errand", {
  payload: Schema.String,
  success: Schema.Struct({ answer: Schema.String, receipt: Schema.String })
})

const runtime = Runtime.layer({ orchestrations: [Errand], activities: [Charge] }).pipe(
  Layer.provide(Charge.toLayer((cents) => Effect.succeed(`paid ${cents}`))),
  Layer.provide(Errand.toLayer(Effect.fn(function*() {
    const answer = yield* Answer.wait
    return { answer, receipt: yield* Charge.execute(12) }
  })))
)

it.live("serve: instances complete with the messages and activities of the file; others wait", () =>
  Effect.gen(function*() {
    const target = yield* PgServer.database
    const file = yield* Files.make()
    for (const id of ["signalled", "charging", "theirs"]) {
      Files.addWaiting(file, id, { name: id === "theirs" ? "Other" : "Errand" })
    }
    Files.addMessage(file, "signalled", Files.signal("signalled", `"yes"`))
    Files.addMessage(file, "theirs", Files.signal("theirs", `"yes"`))
    const later = [
      ["ExternalEvent", { name: "Answer", data: `"before"` }],
      ["ActivityScheduled", { name: "Charge", input: "12" }]
    ] as const
    later.forEach(([type, fields], index) =>
      file.sql(
        "INSERT INTO history VALUES ('charging', 1, ?, ?, ?, '2026-10-01 10:00:01')",
        3 + index,
        type,
        Files.event("charging", 3 + index, type, fields)
      )
    )
    file.sql(
      `INSERT INTO worker_queue (work_item, visible_at, instance_id, execution_id, activity_id, attempt_count)
       VALUES (?, 1, 'charging', 1, 4, 1)`,
      JSON.stringify({
        ActivityExecute: { instance: "charging", execution_id: 1, id: 4, name: "Charge", input: "12" }
      })
    )
    const { served } = yield* SqliteImport.importFile({ file: file.path, target, serve: ["Errand"] })
    assert.strictEqual(served, 2)
    const results = yield* Effect.gen(function*() {
      const client = yield* Client.Client
      return yield* Effect.forEach(["signalled", "charging"], (id) => client.wait(Errand, id))
    }).pipe(Effect.provide(runtime.pipe(Layer.provideMerge(App.store(target.url)))))
    assert.deepStrictEqual(results, [
      { answer: "yes", receipt: "paid 12" },
      { answer: "before", receipt: "paid 12" }
    ])
    const [left] = yield* target.sql("SELECT instance_id AS id, attempt_count AS attempts FROM orchestrator_queue")
    assert.deepStrictEqual(left, { id: "theirs", attempts: 0 })
  }))
