/**
 * `npm run lite`: the whole stack on this machine as real processes. It ingests a data set of some megabytes while the
 * dispatcher and a worker are killed, and shows that every batch was committed once.
 *
 *     npm run lite
 *     npm run lite -- --queue sqs --records 6000
 *
 * Uses the PostgreSQL of `DATABASE_URL`, else starts one. Tables are in the schemas `lite_state` and `lite_data`, and stay.
 */
import { DatabaseServer } from "duroxide-prisma/server"
import { Cause, Effect, Exit } from "effect"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { run } from "./demo/stack.ts"

const { values } = parseArgs({
  options: {
    "queue": { type: "string", default: "postgresql" },
    "records": { type: "string", default: "60000" }
  }
})
const queue = values.queue
if (queue !== "postgresql" && queue !== "sqs") {
  console.error("usage: npm run lite -- [--queue postgresql|sqs] [--records 60000]")
  process.exit(2)
}

const demo = Effect.gen(function*() {
  const { description, url } = yield* DatabaseServer.make()
  console.log(description)
  yield* run({
    url,
    queue,
    records: Number(values.records),
    folder: fileURLToPath(new URL(".", import.meta.url)),
    print: (text) => process.stdout.write(text)
  })
}).pipe(Effect.scoped)

const fiber = Effect.runFork(demo)

const stop = () => fiber.interruptUnsafe()
process.once("SIGINT", stop).once("SIGTERM", stop).once("SIGHUP", stop)
process.stdout.on("error", stop) // the reader has closed the pipe

fiber.addObserver((exit) => {
  if (Exit.isSuccess(exit)) process.exit(0)
  if (Cause.hasInterruptsOnly(exit.cause)) process.exit(130)
  // Expected failures say what to do; unexpected ones are shown with their trace.
  const failure = exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error
  console.error(failure instanceof Error ? `The demo failed: ${failure.message}` : Cause.pretty(exit.cause))
  process.exit(1)
})
