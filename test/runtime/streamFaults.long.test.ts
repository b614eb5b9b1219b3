/**
 * A random model of streams: what each program and activity appends is drawn beforehand, and so is what must arrive.
 * Meanwhile processes die, or lose their locks and still append; answers of the store are lost, before and after it has
 * stored something; readers break off and continue.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Orchestration, ProgressStream, Runtime } from "duroxide-prisma"
import { MemoryDriver, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Database from "../../src/prisma/Database.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import * as LocalProcess from "../utils/localProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const instances = 6
const deaths = 12

const Log = ProgressStream.make("log", { chunk: Schema.String })

/** What a round appends: the program before and after, and an activity. */
const Round = Schema.Struct({
  before: Schema.Int,
  words: Schema.Int,
  resumes: Schema.Boolean,
  together: Schema.Int,
  after: Schema.Int,
  continues: Schema.Boolean
})
type Round = typeof Round.Type

const Say = Activity.make("Say", { payload: Schema.Struct({ round: Schema.Int, of: Round }) })
const Work = Orchestration.make("Work", { payload: Schema.Struct({ first: Schema.Int, rounds: Schema.Array(Round) }) })

const texts = (name: string, count: number) => Array.from({ length: count }, (_, i) => `${name} ${i}`)

const runtime = Runtime.layer({ orchestrations: [Work], activities: [Say] }).pipe(Layer.provide([
  Work.toLayer(Effect.fn(function*({ first, rounds }) {
    for (const [index, of] of rounds.entries()) {
      const round = first + index
      yield* Log.appendAll(texts(`before ${round}`, of.before))
      yield* Say.execute({ round, of })
      for (const text of texts(`after ${round}`, of.after)) yield* Log.append(text)
      if (of.continues) return yield* Work.continueAsNew({ first: round + 1, rounds: rounds.slice(index + 1) })
    }
  })),
  Say.toLayer(Effect.fn(function*({ of: { resumes, together, words }, round }) {
    const said = resumes ? yield* Log.resume : []
    const rest = texts(`say ${round}`, words).slice(said.length)
    while (rest.length > 0) {
      yield* Log.appendAll(rest.splice(0, together))
      yield* Effect.sleep(yield* Random.nextIntBetween(0, 120))
    }
  }))
]))

const round = Effect.gen(function*(): Effect.fn.Return<Round> {
  return {
    before: yield* Random.nextIntBetween(0, 4),
    words: yield* Random.nextIntBetween(1, 25),
    resumes: yield* Random.nextBoolean,
    together: yield* Random.nextIntBetween(1, 5),
    after: yield* Random.nextIntBetween(0, 3),
    continues: (yield* Random.nextIntBetween(0, 3)) === 0
  }
})

const lost = (operation: string) =>
  Effect.fail(
    new ProviderError.ProviderError({ operation, reason: new ProviderError.ConnectionLost({ problem: "a test" }) })
  )

/** One call of ten fails, before or after the store has done its work. */
const faulty = Layer.effect(
  ProviderDriver.ProviderDriver,
  Effect.map(ProviderDriver.ProviderDriver, (driver) =>
    LocalProcess.intercept(driver, (call, operation) => {
      if (!/Chunks|^ack|^advance/.test(operation)) return call
      return Effect.flatMap(Random.nextIntBetween(0, 20), (fate) =>
        fate === 0 ? lost(operation) : fate === 1 ? Effect.andThen(call, lost(operation)) : call)
    }))
)

/** A process that can hang: it keeps no lock and settles nothing, but its handlers still append. */
const begin = Effect.gen(function*() {
  const driver = yield* ProviderDriver.ProviderDriver
  let isHung = false
  const hanging = LocalProcess.intercept(
    driver,
    (call, operation) => isHung && /^(renew|fetch|ack|advance|abandon)/.test(operation) ? lost(operation) : call
  )
  const begun = yield* LocalProcess.start(runtime, {
    runtime: { orchestrationLockTimeout: 1_000, workerLockTimeout: 1_000, maxAttempts: 1_000 }
  }).pipe(Effect.provideService(ProviderDriver.ProviderDriver, hanging))
  return { ...begun, hang: Effect.sync(() => void (isHung = true)) }
})

const postgres = Layer.unwrap(
  Effect.map(
    PgServer.PgServer,
    ({ url }) => PrismaDriver.layer().pipe(Layer.provide(Database.layer({ url })), Layer.orDie)
  )
).pipe(Layer.provide(PgServer.layer))

const stores: ReadonlyArray<readonly [string, Layer.Layer<ProviderDriver.ProviderDriver>]> = [
  ["in memory", MemoryDriver.layer],
  ["on PostgreSQL", postgres]
]

describe.each(stores)("streams of a faulty store %s", (_, store) => {
  it.live("have each chunk once and in order, whichever process dies", () =>
    Effect.gen(function*() {
      let processes = [yield* begin, yield* begin]
      const client = Effect.sync(() => processes.at(-1)!.client)
      let chunksRead = 0
      /**
       * Lets the older one of two processes die or hang, and replaces it, but never before something came of them.
       * Deaths end after a while: an activity that starts over may need longer than any of these processes lives.
       */
      const killing = Effect.repeat(
        Effect.gen(function*() {
          const before = chunksRead
          yield* Effect.sleep(yield* Random.nextIntBetween(300, 1_500))
          yield* waitUntil(Effect.sync(() => chunksRead > before))
          yield* (yield* Random.nextBoolean) ? processes[0]!.kill : processes[0]!.hang
          processes = [processes[1]!, yield* begin]
        }),
        { times: deaths - 1 }
      ).pipe(Effect.andThen(Effect.never))
      /** Reads some chunks at a time, and continues with another client. */
      const read = Effect.fnUntraced(function*(instanceId: string) {
        const entries: Array<ProgressStream.Entry<string>> = []
        const reading = { isOver: false }
        while (!reading.isOver) {
          const most = yield* Random.nextIntBetween(1, 30)
          const before = entries.length
          yield* Stream.runForEach(
            (yield* client).readStream(Log, instanceId, { from: entries.length }).pipe(Stream.take(most)),
            (entry) =>
              Effect.sync(() => {
                entries.push(entry)
                chunksRead++
              })
          ).pipe(
            Effect.andThen(Effect.sync(() => void (reading.isOver = entries.length - before < most))),
            Effect.catchTag("ProviderError", () => Effect.void),
            Effect.timeoutOption(yield* Random.nextIntBetween(50, 1_000))
          )
        }
        return entries
      })

      const work = Effect.forEach(Array.from({ length: instances }, (_, n) => `i${n}`), (instanceId) =>
        Effect.gen(function*() {
          const rounds = yield* Effect.all(Array.from({ length: 4 }, () =>
            round))
          const readers = yield* Effect.forEach([1, 2], () => Effect.forkChild(read(instanceId)))
          yield* Effect.retry(
            Effect.flatMap(
              client,
              (client) => client.start(Work, { instanceId, payload: { first: 0, rounds }, ifExists: "ignore" })
            ),
            { times: 10 }
          )
          return { rounds, entries: yield* Effect.forEach(readers, Fiber.join) }
        }), { concurrency: "unbounded" })
      const done = yield* Effect.raceFirst(work, killing)

      for (const { entries: [entries, others], rounds } of done) {
        assert.deepStrictEqual(entries, others)
        assert.deepStrictEqual(
          entries!.map(({ offset }) =>
            offset
          ),
          entries!.map((_, index) => index)
        )
        const ofProgram = entries!.filter(({ writer }) => writer._tag === "Program").map(({ chunk }) => chunk)
        assert.deepStrictEqual(
          ofProgram,
          rounds.flatMap(({ after, before }, n) => [...texts(`before ${n}`, before), ...texts(`after ${n}`, after)])
        )
        for (const [n, { before, resumes, words }] of rounds.entries()) {
          const said = entries!.filter(({ chunk }) => chunk.startsWith(`say ${n} `))
          const last = said.slice(said.findLastIndex(ProgressStream.startsOver))
          assert.deepStrictEqual((resumes ? said : last).map(({ chunk }) => chunk), texts(`say ${n}`, words))
          // No word comes before what the program said before, or after what it said after.
          const first = entries!.findIndex(({ chunk }) => chunk === `before ${n} ${before - 1}`)
          assert.isTrue(said.every(({ offset }) => offset > first))
          const next = entries!.findIndex(({ chunk }) => chunk === `after ${n} 0`)
          assert.isTrue(next < 0 || said.every(({ offset }) => offset < next))
        }
      }
    }).pipe(
      Effect.scoped,
      Effect.provide([faulty.pipe(Layer.provide(store)), Logger.layer([])])
    ))
})
