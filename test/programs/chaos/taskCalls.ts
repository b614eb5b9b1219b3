// What a client of a chaos run does with tasks and the outbox.
import { Outbox } from "duroxide-prisma/outbox"
import { Transaction } from "duroxide-prisma/prisma"
import { Tasks } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import type { Acknowledged } from "./calls.ts"
import type { Chance } from "./random.ts"
import { applicationPool, Job, Neighbour, Once, OrderPlaced, PingTask, TaskPill, transaction } from "./tasks.ts"

type Service = Tasks.Tasks["Service"]

/** Neighbours of one pill: those of one claim and some more. */
const neighbours = 9

interface Options {
  readonly service: Service
  readonly acknowledged: Acknowledged
  readonly chance: Chance
  readonly freshId: (kind: string) => string
  readonly url: string
}

/** Each is repeated. */
export const work = ({ acknowledged, chance, freshId, service, url }: Options): ReadonlyArray<Effect.Effect<void>> => {
  const pool = applicationPool(url)

  /** A task with the label as its key may be created again, after an error too. */
  const create = Effect.gen(function*() {
    const label = freshId("task")
    const n = chance.between(0, 1_000)
    const ms = chance.one([10, 10, 100, 1_000, 2_500])
    const key = chance.is(0.4) ? { key: label } : {}
    const kind = chance.one(["plain", "plain", "fails", "hopeless", "commits"] as const)
    const payload = { label, n, ms }
    const line = { call: "task", id: label, key: "key" in key }
    const one = service.create(Job, { payload: { ...payload, kind }, ...key })
    const isCreated = yield* acknowledged(line, one)
    if ("key" in key && (!isCreated || chance.is(0.3))) yield* acknowledged(line, one)
    yield* Effect.sleep(chance.between(100, 500))
  })

  /** Several in one statement, which end at different times. */
  const createOnce = Effect.gen(function*() {
    const label = freshId("task")
    const key = chance.is(0.4)
    const all = [1, 2, 3, 4].map((i) => ({ label: `${label}-${i}`, n: i, ms: chance.between(10, 4_000) }))
    const many = service.createMany(Once, all.map((payload) => ({ payload, ...key && { key: payload.label } })))
    yield* acknowledged({ call: "task", id: `${label}-4`, key }, many)
    yield* Effect.sleep(chance.between(500, 1_500))
  })

  /** The result of a task, as its creator learns it. */
  const run = Effect.gen(function*() {
    const label = freshId("task")
    const payload = { label, n: chance.between(0, 1_000), ms: 10, kind: "plain" as const }
    const wait = Effect.gen(function*() {
      const id = yield* service.create(Job, { payload })
      const result = yield* Effect.mapError(
        service.wait(Job, id, { timeout: "20 seconds" }),
        (error) => typeof error === "string" ? { message: error } : error
      )
      if (result !== payload.n + 1) return yield* Effect.die(new Error(`task ${label} ended with ${result}`))
    })
    yield* acknowledged({ call: "task", id: label, key: false }, wait)
    yield* Effect.sleep(chance.between(500, 1_500))
  })

  /** A row of the application, a message and a task in one transaction, some of which are rolled back. */
  const order = Effect.gen(function*() {
    const id = freshId("order")
    const end = chance.is(0.2) ? "ROLLBACK" : "COMMIT"
    const payload = { label: `task-of-${id}`, n: chance.between(0, 1_000), ms: 10, kind: "commits" as const }
    yield* acknowledged(
      { call: end === "COMMIT" ? "order" : "noOrder", id },
      transaction(pool, async (client) => {
        await client.query("INSERT INTO chaos.orders (id) VALUES ($1)", [id])
        await Effect.runPromise(
          Outbox.within(Transaction.make(client, { schema: "public" })).add("orders", OrderPlaced, { order_id: id })
        )
        await Effect.runPromise(
          Tasks.within(Transaction.make(client, { schema: "public" })).create(Job, { payload, key: payload.label })
        )
      }, end)
    )
    yield* Effect.sleep(chance.between(100, 500))
  })

  return [create, createOnce, run, order]
}

/** A pill, and tasks that are claimed together with it. */
export const poison = (service: Service, acknowledged: Acknowledged, id: string) => {
  const all = Array.from({ length: neighbours }, (_, i) => ({ label: `${id}-neighbour-${i}`, n: i, ms: 1_500 }))
  const pill = { label: id, n: 0, ms: 500 }
  const create = Effect.andThen(
    service.createMany(Neighbour, all.map((payload) => ({ payload, key: payload.label }))),
    service.create(TaskPill, { payload: pill, key: id })
  )
  return Effect.repeat(acknowledged({ call: "task", id, key: true }, create), { until: (is) => is })
}

/** Fails unless the process runs a task of its own in time, whose wake-up other workers of the queue give back. */
export const ping = (service: Service, process: string, label: string, timeoutMs: number) => {
  const task = PingTask(process)
  return Effect.andThen(
    service.create(task, { payload: { label, n: 1, ms: 0 }, key: label }),
    (id) => service.wait(task, id, { timeout: timeoutMs })
  )
}
