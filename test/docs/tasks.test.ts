import { assert, it } from "@effect/vitest"
import { PrismaPg } from "@prisma/adapter-pg"
import { Client, Orchestration, Runtime } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { Migrator, PgQueue, PrismaProvider, Transaction } from "duroxide-prisma/prisma"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { PrismaClient } from "../../src/prisma/generated/client.js"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const resize = (image: string, _key: string) => Effect.succeed(`small ${image}`)

const Resize = Task.make("Resize", {
  payload: { image: Schema.String },
  success: Schema.String,
  timeout: "5 minutes"
})

const ResizeLive = Resize.toLayer(Effect.fn(function*({ image }) {
  const { idempotencyKey } = yield* Task.Attempt
  return yield* resize(image, idempotencyKey)
}))

const resized = Effect.gen(function*() {
  const tasks = yield* Tasks.Tasks
  const id = yield* tasks.create(Resize, { payload: { image: "cat.png" }, key: "cat.png" })
  return yield* tasks.wait(Resize, id)
})

const WorkerLive = TaskWorker.layer({ tasks: [Resize], concurrency: 20 }).pipe(
  Layer.provide(ResizeLive),
  Layer.merge(Outbox.publisher()),
  Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
  Layer.provide(PrismaProvider.layerDatabase({ url: process.env.DATABASE_URL! }))
)

const Pay = Task.make("Pay", { payload: { invoice: Schema.String }, success: Schema.String })

const Publish = Orchestration.make("Publish", { payload: Schema.String, success: Schema.String })

const RuntimeLive = Runtime.layer({ orchestrations: [Publish], activities: [...Tasks.activities] }).pipe(
  Layer.provide([
    Publish.toLayer((image) => Resize.execute({ image })),
    Tasks.layerActivities
  ])
)

it("docs/tasks.md: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/tasks.test.ts"))
  const examples = Docs.blocks(Docs.read("docs/tasks.md"), "ts")
  assert.lengthOf(examples, 7)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  for (const layer of [WorkerLive, RuntimeLive]) assert.isTrue(Layer.isLayer(layer))
})

it("docs/tasks.md: its tables have the defaults of the code", () => {
  const page = Docs.read("docs/tasks.md")
  assert.include(page, `| \`retry.maxAttempts\`   | ${Resize.maxAttempts} `)
  assert.include(page, `| \`queue\`               | \`${Resize.queue}\``)
  const source = Docs.read("src/tasks/TaskWorker.ts") + Docs.read("src/tasks/Task.ts")
  for (
    const [option, value] of [
      ["gracePeriod", "10 seconds"],
      ["keepEnded", "7 days"],
      ["keepDead", "30 days"],
      [
        "lease",
        "30 seconds"
      ],
      ["concurrency", "10"],
      ["visibilityTimeout", "30 seconds"]
    ]
  ) {
    assert.match(page, new RegExp(`\\| \`${option}\` +\\| ${value} `))
    assert.match(source, new RegExp(`[Dd]efaults to ${value}\\.[\\s\\S]{0,20}\\*/\\s+readonly ${option}\\?`))
  }
})

it.live("docs/tasks.md: its transactions and its worker", () =>
  Effect.gen(function*() {
    const { sql, url: plainUrl } = yield* PgServer.emptyDatabase
    yield* Effect.addFinalizer(() => sql("DROP SCHEMA IF EXISTS duroxide CASCADE"))
    const url = plainUrl.replace(/\?.*$/, "")
    yield* Effect.provide(Migrator.migrate({ url, schema: "duroxide" }), Logger.layer([]))
    yield* sql("CREATE TABLE images (name text PRIMARY KEY)")
    yield* sql("CREATE TABLE invoices (id text PRIMARY KEY, paid boolean)")
    yield* sql("INSERT INTO invoices VALUES ('i-1', false)")
    const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) })
    yield* Effect.addFinalizer(() => Effect.promise(() => prisma.$disconnect()))
    const PayLive = Pay.toLayer(Effect.fn(function*({ invoice }) {
      const attempt = yield* Pay.attempt
      yield* Effect.promise(() =>
        prisma.$transaction(async (tx) => {
          await tx.$executeRaw`UPDATE invoices SET paid = true WHERE id = ${invoice}`
          await Effect.runPromise(attempt.commit(tx, "paid"))
        })
      )
      return "paid"
    }))
    const upload = async (name: string) => {
      await prisma.$transaction(async (tx) => {
        await tx.$executeRaw`INSERT INTO images (name) VALUES (${name})`
        const tasks = Tasks.within(Transaction.make(tx, { schema: "duroxide" }))
        await Effect.runPromise(tasks.create(Resize, { payload: { image: name }, key: name }))
      })
    }
    yield* Effect.promise(() => upload("cat.png"))
    const process = TaskWorker.layer({ tasks: [Resize, Pay] }).pipe(
      Layer.provide([ResizeLive, PayLive]),
      Layer.merge(Outbox.publisher()),
      Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
      Layer.provideMerge(Tasks.layer),
      Layer.provide(PrismaProvider.layerDatabase({ url, schema: "duroxide", migrate: "none" })),
      Layer.provide(Logger.layer([]))
    )
    yield* Effect.gen(function*() {
      assert.strictEqual(yield* resized, "small cat.png")
      const tasks = yield* Tasks.Tasks
      const id = yield* tasks.create(Pay, { payload: { invoice: "i-1" } })
      assert.strictEqual(yield* tasks.wait(Pay, id), "paid")
    }).pipe(Effect.provide(process))
    assert.deepStrictEqual(yield* sql("SELECT paid FROM invoices"), [{ paid: true }])
    // The task of the transaction was that of the key.
    assert.lengthOf(yield* sql("SELECT FROM duroxide.queue_tasks WHERE name = 'Resize'"), 1)
  }).pipe(Effect.scoped))

it.live("docs/tasks.md: one process runs an orchestration and its tasks", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    const ProcessLive = Layer.mergeAll(
      RuntimeLive,
      TaskWorker.layer({ tasks: [Resize] }).pipe(Layer.provide(ResizeLive)),
      Outbox.publisher()
    ).pipe(
      Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
      Layer.merge(Client.layer),
      Layer.provide(PrismaProvider.layer({ url }))
    )

    const main = Runtime.launch(ProcessLive)

    const running = yield* Effect.forkScoped(Effect.provide(main, Logger.layer([])))
    yield* Effect.gen(function*() {
      const client = yield* Client.Client
      const small = yield* client.execute(Publish, { instanceId: "album", payload: "cat.png" })
      assert.strictEqual(small, "small cat.png")
    }).pipe(Effect.provide(Client.layer.pipe(
      Layer.provide(PrismaProvider.layer({ url })),
      Layer.provide(Logger.layer([]))
    )))
    assert.isUndefined(running.pollUnsafe())
    const [task] = yield* sql("SELECT key FROM queue_tasks")
    assert.match(String(task!["key"]), /^orchestration\/[0-9a-f]{64}$/) // as docs/tables.md says
  }).pipe(Effect.scoped))
