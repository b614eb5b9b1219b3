/**
 * Not a part of the platform: the party that sends the data, receives the webhook, and checks the result. Ends with a
 * failure if anything is missing or doubled.
 */
import { Config, Console, Data, Deferred, Effect, Layer } from "effect"
import { audit } from "../demo/audit.ts"
import * as Source from "../demo/source.ts"
import * as Story from "../demo/story.ts"
import { table } from "../demo/table.ts"
import * as Databases from "../shared/databases.ts"
import * as ObjectStore from "../shared/objectStore.ts"
import * as Settings from "../shared/settings.ts"

class NotAsExpected extends Data.TaggedError("NotAsExpected")<{ readonly problems: ReadonlyArray<string> }> {
  override get message() {
    return this.problems.map((problem) => `NOT as expected: ${problem}`).join("\n")
  }
}

/** A demo that started this process harms services meanwhile, and says when the story continues. */
const makeDemo = (batches: number) => {
  const said = { continue: Deferred.makeUnsafe<void>(), finish: Deferred.makeUnsafe<void>() }
  process.on("message", (word: keyof typeof said) => Deferred.doneUnsafe(said[word], Effect.void))
  return (sent: number): Effect.Effect<void> => {
    if (process.send === undefined) return Effect.void
    if (sent === Math.floor(batches / 2)) process.send({ halfWay: true })
    if (sent === Math.floor(batches * 3 / 4)) return Deferred.await(said.continue)
    return sent === batches ? Deferred.await(said.finish) : Effect.void
  }
}

export const main = Effect.gen(function*() {
  const secret = yield* Settings.webhookSecret
  const source = Source.make({
    seed: 7,
    records: yield* Config.Int("RECORDS"),
    batchSize: yield* Config.Int("BATCH_SIZE").pipe(Config.withDefault(1000))
  })
  const afterBatch = makeDemo(source.batches.length)
  const subscriber = yield* Story.subscribe(yield* Settings.port, secret)
  process.send?.({ port: subscriber.port })
  const run = yield* Story.run({
    source,
    subscriber,
    secret,
    gatewayUrl: yield* Config.String("GATEWAY_URL"),
    queryUrl: yield* Config.String("QUERY_URL"),
    paceMs: 100,
    afterBatch
  })
  const report = yield* audit(source, run)
  yield* Console.log(table(source, run, report))
  if (report.problems.length > 0) return yield* new NotAsExpected({ problems: report.problems })
  yield* Console.log("Every record is there once, and every batch was committed once.")
}).pipe(Effect.provide(Layer.mergeAll(Databases.stateLayer, Databases.dataLayer, ObjectStore.layer)))
