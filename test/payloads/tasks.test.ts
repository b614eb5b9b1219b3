/**
 * Tasks and outbox messages whose payloads are encrypted, on PostgreSQL.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider, Transaction } from "duroxide-prisma/prisma"
import { PayloadCodec } from "duroxide-prisma/provider"
import { Consumer, Message } from "duroxide-prisma/queue"
import { Dataset } from "duroxide-prisma/recipes/datasets"
import { Schedules } from "duroxide-prisma/schedules"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Cli from "../cli/cli.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { canary, encryption, keysText, rows } from "./utils.ts"

class Full extends Schema.TaggedError<Full>()("Full", { name: Schema.String }) {}

const Clean = Task.make("Clean", {
  payload: { name: Schema.String },
  success: Schema.String,
  error: Full,
  queue: "rooms",
  retry: { maxAttempts: 1 }
})
const Tidy = Orchestration.make("Tidy", { payload: Schema.String, success: Schema.String, error: Full })
const Arrived = Message.make("arrived", { name: Schema.String })

const queues = { rooms: {}, desk: {} }

const clean = ({ name }: { readonly name: string }) =>
  name.endsWith("full")
    ? Effect.fail(new Full({ name }))
    : name.endsWith("dies")
    ? Effect.die(new Error(name))
    : Effect.succeed(`clean for ${name}`)

/** A process with everything; `arrived` is called with each message. */
const process = (
  url: string,
  codec: PayloadCodec.PayloadCodec["Service"] | undefined,
  arrived: (name: string) => void
) => {
  const runtime = Runtime.layer({ orchestrations: [Tidy], activities: [...Tasks.activities] }).pipe(
    Layer.provide([
      Tidy.toLayer((name) =>
        Effect.zipWith(Clean.execute({ name }), Clean.execute({ name }, { key: "of all" }), (a, b) => a + b)
      ),
      Tasks.layerActivities
    ]),
    Layer.provide(RuntimeConfig.layer({ shutdownTimeout: 0 }))
  )
  const worker = TaskWorker.layer({ tasks: [Clean], gracePeriod: 0 }).pipe(
    Layer.provide(Clean.toLayer(clean)),
    Layer.merge(Outbox.publisher()),
    Layer.merge(Consumer.layer({
      queue: "desk",
      handlers: [Consumer.on(Arrived, ({ name }) => Effect.sync(() => arrived(name)))]
    })),
    Layer.provide(PgQueue.layer({ queues }))
  )
  return Layer.mergeAll(runtime, worker, Client.layer, Tasks.layer, Outbox.layer).pipe(
    Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none" })),
    Layer.provideMerge(codec === undefined ? Layer.empty : Layer.succeed(PayloadCodec.PayloadCodec, codec)),
    Layer.provide(Logger.layer([]))
  )
}

const codec = (...ids: ReadonlyArray<string>) => PayloadCodec.make([encryption(...ids)])

describe("Encrypted tasks and messages", () => {
  it.live("are plain for handlers, callers and consumers, and sealed in every row", () =>
    Effect.gen(function*() {
      const database = yield* PgServer.database
      const arrivals: Array<string> = []
      const payloads = codec("k1")
      yield* Effect.gen(function*() {
        const [client, tasks, outbox] = yield* Effect.all([Client.Client, Tasks.Tasks, Outbox.Outbox])
        const wait = (name: string) =>
          Effect.flatMap(
            tasks.create(Clean, { payload: { name } }),
            (id) => Effect.map(Effect.exit(tasks.wait(Clean, id)), (exit) => ({ id, exit }))
          )
        const cleaned = yield* wait(canary)
        assert.deepStrictEqual(cleaned.exit, Exit.succeed(`clean for ${canary}`))
        const full = yield* wait(`${canary} full`)
        assert.include(JSON.stringify(full.exit), canary)
        const dead = yield* wait(`${canary} dies`)
        assert.include(JSON.stringify(dead.exit), canary)
        // Results and failures reach programs by signals that SQL sends, and as results of activities.
        const twice = `clean for ${canary}`.repeat(2)
        assert.strictEqual(yield* client.execute(Tidy, { instanceId: "a", payload: canary }), twice)
        assert.strictEqual(yield* client.execute(Tidy, { instanceId: "b", payload: canary }), twice)
        const failed = yield* Effect.flip(client.execute(Tidy, { instanceId: "c", payload: `${canary} full` }))
        assert.deepStrictEqual(failed, new Full({ name: `${canary} full` }))
        assert.include(JSON.stringify(yield* tasks.status(dead.id)), canary)
        assert.include(JSON.stringify(yield* tasks.listDead({ name: "Clean" })), canary)
        assert.include(JSON.stringify(yield* tasks.attempts(full.id)), canary)

        const stored = Schedules.make("stored", {
          timing: Schedules.every("1 hour"),
          start: Clean,
          payload: { name: canary }
        })
        const made = Schedules.make("made", { timing: Schedules.every("1 hour"), start: Tidy, payload: () => canary })
        yield* Schedules.runDue([stored, made])
        yield* Effect.gen(function*() {
          const schedules = yield* Schedules.Schedules
          yield* schedules.runNow("stored")
          const id = yield* schedules.runNow("made")
          assert.strictEqual((yield* Schedules.runDue([stored, made])).started, 2)
          assert.strictEqual(yield* client.wait(Tidy, id), twice)
          const [run] = yield* schedules.runs("stored")
          assert.strictEqual(yield* tasks.wait(Clean, run!.taskId!), `clean for ${canary}`)
        }).pipe(Effect.provide(Schedules.layerClient))
        yield* outbox.add("desk", Arrived, { name: canary })
        const dataset = yield* Effect.provide(Dataset.Dataset, Dataset.layer)
        const datasetUuid = yield* dataset.create("guests")
        const version = yield* dataset.openVersion(datasetUuid)
        const batch = (batchUri: string) => ({
          datasetUuid,
          version,
          batchUri,
          recordCount: 1,
          task: Clean,
          payload: { name: canary }
        })
        const published = yield* dataset.publishBatch(batch("s3://in/a"))
        assert.strictEqual(yield* tasks.wait(Clean, published.taskId), `clean for ${canary}`)
        const connection = yield* PgServer.connect(database.url)
        const joined = Transaction.make(connection, { schema: database.schema, payloads })
        yield* Effect.promise(() => connection.query("BEGIN"))
        yield* Client.within(joined).start(Tidy, { instanceId: "joined", payload: canary })
        yield* Tasks.within(joined).create(Clean, { payload: { name: canary }, key: "joined" })
        yield* Outbox.within(joined).add("desk", Arrived, { name: canary })
        yield* Dataset.within(joined).publishBatch(batch("s3://in/b"))
        yield* Effect.promise(() => connection.query("COMMIT"))
        assert.strictEqual(yield* client.wait(Tidy, "joined"), twice)
        yield* waitUntil(Effect.sync(() => arrivals.length >= 2))
        assert.deepStrictEqual(arrivals, [canary, canary])
      }).pipe(Effect.provide(process(database.url, payloads, (name) => arrivals.push(name))))
      const all = yield* rows(database)
      assert.deepStrictEqual(all.filter(({ row }) => row.includes(canary)), [])
      for (const table of ["schedules", "queue_tasks", "queue_task_attempts", "history", "queue_outbox"]) {
        assert.isTrue(all.some((found) => found.table.includes(table) && found.row.includes("$sealed")), table)
      }
      for (const flags of ["", " --json", " --payloads"]) {
        for (const status of ["", " --status completed"]) {
          const { stderr, stdout } = yield* Cli.run(`tasks${flags}${status}`, { env: { DATABASE_URL: database.url } })
          assert.include(stdout, status === "" || flags === " --payloads" ? "encrypted (key k1," : "Clean")
          assert.notInclude(stdout + stderr, canary)
        }
      }
      const env = { DATABASE_URL: database.url, DUROXIDE_PAYLOAD_KEYS: keysText("k1") }
      const dead = yield* Cli.run("tasks --payloads --decode", { env })
      assert.include(dead.stdout, `${canary} dies`)
      // What kind of failure it was can be read.
      assert.isTrue(all.some(({ row }) => /"_tag"+:"+Died/.test(row)))
    }).pipe(Effect.scoped))

  it.live("wait for a process with their key: attempts without it do not count", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const arrived = Deferred.makeUnsafe<string>()
      const start = Effect.fnUntraced(function*(codec: PayloadCodec.PayloadCodec["Service"] | undefined) {
        return yield* Layer.build(process(url, codec, (name) => Deferred.doneUnsafe(arrived, Effect.succeed(name))))
      })
      const taskId = yield* Effect.gen(function*() {
        const sealed = yield* start(codec("k1"))
        yield* Context.get(sealed, Client.Client).start(Tidy, { instanceId: "a", payload: canary })
        yield* waitUntil(
          Effect.map(sql("SELECT FROM queue_tasks WHERE status = 'Completed'"), (rows) => rows.length === 2)
        )
        return yield* Context.get(sealed, Tasks.Tasks).create(Clean, { payload: { name: canary }, delay: "1 second" })
      }).pipe(Effect.scoped)
      yield* Effect.gen(function*() {
        const without = yield* start(undefined)
        const tasks = Context.get(without, Tasks.Tasks)
        yield* waitUntil(
          Effect.map(tasks.attempts(taskId), (attempts) => attempts.some(({ outcome }) => outcome === "Unavailable"))
        )
        const status = yield* tasks.status(taskId)
        assert.strictEqual(status._tag, "Pending")
        const [attempt] = yield* tasks.attempts(taskId)
        assert.include(JSON.stringify(attempt), "it is encrypted (key k1,")
      }).pipe(Effect.scoped)
      // Its next attempt would be in a minute.
      yield* sql("UPDATE queue_tasks SET run_at = now()")
      yield* sql("UPDATE queue_outbox SET deliver_at = now()")
      yield* sql("UPDATE queue_messages SET visible_at = now()")
      const again = yield* start(codec("k2", "k1"))
      assert.strictEqual(
        yield* Context.get(again, Tasks.Tasks).wait(Clean, taskId),
        `clean for ${canary}`
      )
    }).pipe(Effect.scoped))
})
