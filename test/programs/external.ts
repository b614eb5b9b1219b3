// A worker whose activities end outside: `node external.js <database URL> <schema>`. Its handler writes the token into
// a table of the test. Runs until it is killed; prints `ready` when it serves.
import { Activity, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Completion, External } from "duroxide-prisma/recipes/completions"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as pg from "pg"
import { shortLocks } from "./shortLocks.ts"

export const Approve = External.make("Approve", { success: Schema.Int, expiry: "1 hour" })

/** Two answers, one after the other. */
export const Asking = Orchestration.make("Asking", {
  success: Schema.Array(Schema.Int),
  error: Completion.CompletionExpired
})

export const keys = Completion.layerKeys([Redacted.make("k".repeat(32))])

const AskingLive = Asking.toLayer(Effect.fn(function*() {
  return [yield* Approve.execute(), yield* Approve.execute()]
}))

const main = (url: string, schema: string) => {
  const pool = new pg.Pool({
    connectionString: url.replace(/\?.*$/, ""),
    options: `-c search_path=${schema}`,
    max: 4
  })
  const ApproveLive = Approve.toLayer((_, token) =>
    Effect.flatMap(
      Activity.Call,
      ({ activityId, instanceId }) =>
        Effect.promise(() =>
          pool.query("INSERT INTO tokens (instance_id, activity_id, token) VALUES ($1, $2, $3)", [
            instanceId,
            activityId,
            token
          ])
        )
    )
  )
  const App = Runtime.layer({ orchestrations: [Asking], activities: [Approve] }).pipe(
    Layer.provide([AskingLive, ApproveLive]),
    Layer.provide(RuntimeConfig.layer(shortLocks("1 second"))),
    Layer.provide(keys),
    Layer.provide(PrismaProvider.layer({ url, schema, migrate: "none" }))
  )
  Effect.runFork(Effect.scoped(
    Layer.build(App).pipe(
      Effect.tap(() => Effect.sync(() => process.stdout.write("ready\n"))),
      Effect.andThen(Effect.never)
    )
  ))
}

// The definitions are imported by the test.
if (process.argv[1]?.endsWith("external.js")) main(process.argv[2]!, process.argv[3]!)
