import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Ours from "./ours.ts"
import * as Rust from "./Rust.ts"

const Undo = Activity.make("Undo")
/** A saga over a child of each side. */
const Saga = Orchestration.make("Saga")
const Inner = Orchestration.make("Inner")

const app = (shared: Rust.Shared, undone: Array<string>) =>
  Runtime.layer({ orchestrations: [Saga, Inner], activities: [Undo] }).pipe(
    Layer.provide([
      Undo.toLayer(() => Effect.map(Activity.Call, ({ instanceId }) => void undone.push(instanceId))),
      Inner.toLayer(() => Effect.ensuring(Ours.Letters.wait, Undo.execute())),
      Saga.toLayer(() =>
        Effect.all([Inner.execute(), Ours.RustErrand.executeWithId({ instanceId: "errand", payload: "anna" })], {
          concurrency: "unbounded",
          discard: true
        }).pipe(Effect.ensuring(Undo.execute()))
      )
    ]),
    Layer.provideMerge(Ours.store(shared))
  )

const status = (shared: Rust.Shared, instanceId: string) =>
  Rust.ask(shared, (client) => client.getStatus(instanceId)) as Effect.Effect<{ readonly status: string }>

/** Reads the whole history as Duroxide does. */
const kinds = (shared: Rust.Shared, instanceId: string) =>
  Effect.map(
    Rust.ask(shared, (client) => client.readExecutionHistory(instanceId, 1)),
    (events) => events.map(({ kind }) => kind)
  )

describe("an interruption", () => {
  it.live("cleans up here, terminates the child in Rust, and leaves histories that Duroxide reads", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run()
      const undone: Array<string> = []
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const { fork, retry } = yield* Admin.Admin
        yield* client.start(Saga, { instanceId: "saga" })
        yield* Rust.asking(shared, "errand")
        yield* client.interrupt("saga", "rain", { deadline: "1 minute" })
        const error = yield* Effect.flip(client.wait(Saga, "saga"))
        assert.deepInclude(error, { _tag: "InstanceCancelled", reason: "rain" })
        assert.deepStrictEqual(undone, ["saga::sub::2", "saga"])
        assert.strictEqual((yield* client.status("errand"))._tag, "Cancelled")
        for (const instanceId of ["saga", "saga::sub::2", "errand"]) {
          assert.strictEqual((yield* status(shared, instanceId)).status, "Failed")
        }
        const read = yield* kinds(shared, "saga")
        assert.lengthOf(read.filter((kind) => kind === "SubOrchestrationCancelRequested"), 2)
        assert.strictEqual(read.at(-1), "OrchestrationFailed")

        const { instances } = yield* retry("saga::sub::2", { from: 2 }).pipe(
          Effect.catchTag("ProviderError", () => Effect.succeed({ instances: [] }))
        )
        assert.deepStrictEqual(instances, [], "its parent has its answer")
        yield* fork("saga::sub::2", { atEvent: 2, newId: "again" })
        yield* client.send(Ours.Letters, "again", "on")
        yield* client.wait(Inner, "again")
        assert.strictEqual((yield* status(shared, "again")).status, "Completed")
        assert.strictEqual((yield* kinds(shared, "again"))[0], "OrchestrationStarted")
      }).pipe(Effect.provide(app(shared, undone)))
    }))

  it.live("ends an instance of Rust at its deadline, and not before", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.RustErrand, { instanceId: "errand", payload: "anna" })
        yield* Rust.asking(shared, "errand")
        yield* client.interrupt("errand", "rain", { deadline: "2 seconds" })
        yield* waitUntil(
          Effect.map(
            shared.sql("SELECT FROM history WHERE event_data LIKE '%duroxide-prisma/interrupt%'"),
            (rows) => rows.length === 1
          )
        )
        assert.strictEqual((yield* client.status("errand"))._tag, "Running")
        const error = yield* Effect.flip(client.wait(Ours.RustErrand, "errand"))
        assert.deepInclude(error, { _tag: "InstanceCancelled", reason: "rain (past its deadline)" })
      }).pipe(Effect.provide(Ours.store(shared)))
    }))
})
