import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider, QueueNotifier } from "duroxide-prisma/prisma"
import type { Queue } from "duroxide-prisma/queue"
import { SqsQueue } from "duroxide-prisma/queue/sqs"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { Hint } from "../../src/waking/Notifier.ts"
import type { Received } from "../../src/waking/Notifier.ts"
import * as Notifier from "../../src/waking/Notifier.ts"
import * as SqsServer from "../queue/utils/sqsServer.ts"
import { logging } from "../utils/listening.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

type Server = Layer.Layer<Queue.Queue, unknown, PrismaProvider.DatabaseServices>

const queues = { "hints-1": {}, "hints-2": {} }
const inboxes = Object.keys(queues)

const sqs = (client: SqsQueue.Options["client"]) => SqsQueue.layer({ queues, client, create: true })

/** No process of these tests listens, but the one that publishes. */
const database = (url: string, enabled = false) =>
  PrismaProvider.layerDatabase({ url, longPolling: { enabled }, migrate: "none" })

const publisher = (url: string, server: Server) =>
  Layer.build(Outbox.publisher().pipe(Layer.provide(server), Layer.provide(database(url, true))))

const notifier = (url: string, server: Server) =>
  QueueNotifier.layer({ inboxes }).pipe(Layer.provide(server), Layer.provide(database(url)))

/** A process that notes what it hears. */
const open = Effect.fnUntraced(function*(url: string, server: Server) {
  const context = yield* Layer.build(notifier(url, server))
  const service = Context.get(context, Notifier.Notifier)
  const heard: Array<Received> = []
  const states: Array<string> = []
  yield* service.listen({
    connected: () => void states.push("connected"),
    disconnected: (problem) => void states.push(problem),
    receive: (received) => void heard.push(received)
  })
  return { service, heard, states, until: (count: number) => waitUntil(Effect.sync(() => heard.length >= count)) }
})

const connected = ({ states }: { readonly states: ReadonlyArray<string> }) =>
  waitUntil(Effect.sync(() => states.at(-1) === "connected"))

describe("QueueNotifier:", () => {
  it.live("hints reach the other process by the outbox, not the sender", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const { client } = yield* SqsServer.start
      yield* publisher(url, sqs(client))
      const [one, two] = yield* Effect.all([open(url, sqs(client)), open(url, sqs(client))])
      yield* connected(one)
      yield* connected(two)
      assert.lengthOf(yield* sql("SELECT FROM queue_listeners"), 2)
      const hints = [
        Hint.Work({ queue: "worker", visibleAtMs: 5 }),
        Hint.Changed({ fingerprints: Array.from({ length: 40_000 }, () => "0123abcd") }),
        Hint.Hello()
      ]
      yield* one.service.announce(hints)
      yield* waitUntil(Effect.sync(() => two.heard.some(({ hint }) => hint._tag === "Hello")))
      yield* two.service.announce([Hint.Sampled()])
      yield* one.until(1)
      assert.deepStrictEqual(one.heard.map(({ hint }) => hint._tag), ["Sampled"])
      assert.include(two.heard.map(({ hint }) => hint._tag), "Work")
    }).pipe(Effect.scoped))

  it.live("one process more than inboxes polls, with a warning; an inbox is free when its process closes or is gone", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const server = PgQueue.layer({ queues })
      const log = logging()
      yield* log.into(Effect.gen(function*() {
        yield* Effect.scoped(Effect.gen(function*() {
          yield* connected(yield* open(url, server))
          yield* connected(yield* open(url, server))
          const three = yield* open(url, server)
          const warnings = Effect.sync(() =>
            log.lines.filter(({ level, text }) => level === "Warn" && text.startsWith("QueueNotifier"))
          )
          yield* waitUntil(Effect.map(warnings, ({ length }) => length > 0))
          assert.deepStrictEqual((yield* warnings).map(({ text }) => text), [
            "QueueNotifier: this process has no inbox, so it polls"
          ])
          assert.deepStrictEqual(three.states, ["all of the 2 inboxes are in use; declare more"])
        }))
        assert.deepStrictEqual(yield* sql("SELECT FROM queue_listeners"), [])

        yield* sql("INSERT INTO queue_listeners VALUES ('hints-1', now()), ('hints-2', now() - interval '6 minutes')")
        const late = yield* open(url, server)
        yield* connected(late)
        assert.lengthOf(yield* sql("SELECT FROM queue_listeners WHERE seen_at > now() - interval '1 minute'"), 2)
        yield* sql("UPDATE queue_listeners SET seen_at = now() - interval '6 minutes' WHERE queue = 'hints-1'")
        // Who is not seen gets no messages.
        yield* late.service.announce([Hint.Hello()])
        assert.deepStrictEqual(yield* sql("SELECT FROM queue_outbox"), [])
      }))
    }).pipe(Effect.scoped))

  for (const name of ["PgQueue", "SqsQueue"]) {
    it.live(`${name}: no row of a hint stays once it is sent, nor is one sent that has expired`, () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const all = { ...queues, "hints-3": {}, jobs: {} }
        const server = name === "PgQueue"
          ? PgQueue.layer({ queues: all })
          : SqsQueue.layer({ queues: all, client: (yield* SqsServer.start).client, create: true })
        const [one, two] = yield* Effect.all([open(url, server), open(url, server)])
        yield* connected(one)
        yield* connected(two)
        yield* sql("INSERT INTO queue_listeners VALUES ('hints-3', now()) ON CONFLICT DO NOTHING")
        yield* one.service.announce([Hint.Hello()])
        yield* sql("UPDATE queue_outbox SET expires_at = now() - interval '1 second'")
        for (let i = 0; i < 20; i++) yield* one.service.announce([Hint.Sampled()])
        yield* sql(`SELECT dx_add_to_outbox('[{"queue": "jobs", "payload": {"kind": "job"}}]')`)
        const rows = sql("SELECT queue FROM queue_outbox")
        assert.lengthOf(yield* rows, 43)
        const publishing = Layer.provide(Outbox.publisher(), server).pipe(Layer.provide(database(url, true)))
        yield* Layer.build(publishing)
        yield* two.until(20)
        yield* waitUntil(Effect.map(rows, ({ length }) => length === 1))
        assert.deepStrictEqual(yield* rows, [{ queue: "jobs" }])
        assert.isTrue(two.heard.every(({ hint }) => hint._tag === "Sampled"))
      }).pipe(Effect.scoped))

    it.live(`${name}: the next owner of an inbox does not learn of what the last one has not read`, () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const server = name === "PgQueue" ? PgQueue.layer({ queues }) : sqs((yield* SqsServer.start).client)
        yield* publisher(url, server)
        yield* sql("INSERT INTO queue_listeners SELECT unnest('{hints-1,hints-2}'::text[]), now()")
        const sender = yield* open(url, server)
        for (let i = 0; i < 3; i++) yield* sender.service.announce([Hint.Hello()])
        const unsent = sql("SELECT FROM queue_outbox WHERE sent_at IS NULL")
        yield* waitUntil(Effect.map(unsent, ({ length }) => length === 0))
        yield* sql("UPDATE queue_listeners SET seen_at = now() - interval '6 minutes'")
        const next = yield* open(url, server)
        yield* connected(next)
        yield* sender.service.announce([Hint.Sampled()])
        yield* waitUntil(Effect.sync(() => next.heard.some(({ hint }) => hint._tag === "Sampled")))
        assert.deepStrictEqual(next.heard.map(({ hint }) => hint._tag), ["Sampled"])
        const [inbox] = yield* sql<{ queue: string }>(
          "SELECT queue FROM queue_listeners WHERE seen_at > now() - interval '1 minute'"
        )
        const left = sql("SELECT FROM queue_messages WHERE queue = $1", [inbox!.queue])
        yield* waitUntil(Effect.map(left, ({ length }) => length === 0))
      }).pipe(Effect.scoped))
  }

  it.live("without inboxes, or with a name that no queue has: InvalidInput", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      for (const inboxes of [[], ["a b"]]) {
        const { reason } = yield* Effect.flip(QueueNotifier.make({ inboxes })).pipe(
          Effect.provide(Layer.provideMerge(PgQueue.layer({ queues }), database(url)))
        )
        assert.deepInclude(reason, { _tag: "InvalidInput", field: "inboxes" })
      }
    }).pipe(Effect.scoped))

  it.live("a start in one process wakes the runtime of another one; neither listens", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const { client } = yield* SqsServer.start
      const Greet = Orchestration.make("Greet", { payload: Schema.Number, success: Schema.Number })
      const longPolling = { fallbackPollInterval: "5 minutes" } as const
      const process = PrismaProvider.layer({ url, migrate: "none", longPolling }).pipe(
        Layer.provide(notifier(url, sqs(client)))
      )
      yield* publisher(url, sqs(client))
      yield* Layer.build(
        Runtime.layer({ orchestrations: [Greet] }).pipe(
          Layer.provide(Greet.toLayer((n) => Effect.succeed(n + 1))),
          Layer.provide(process)
        )
      )
      const services = yield* Layer.build(Client.layer.pipe(Layer.provide(Layer.fresh(process))))
      const starter = Context.get(services, Client.Client)
      // Its first looks are over; without hints it would look again minutes later.
      yield* Effect.sleep("3 seconds")
      const [first] = yield* Effect.timed(starter.execute(Greet, { instanceId: "a", payload: 1 }))
      const [second, answer] = yield* Effect.timed(starter.execute(Greet, { instanceId: "b", payload: 2 }))
      assert.strictEqual(answer, 3)
      for (const latency of [first, second]) assert.isBelow(Duration.toMillis(latency), 120_000)
    }).pipe(Effect.scoped))
})
