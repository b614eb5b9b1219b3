/**
 * `npm run demo`: fulfils the orders of `orders.json` on a real PostgreSQL, kills the worker half way, and shows that
 * every order ends as it should and every side effect happened once.
 *
 *     npm run demo                    orders of examples/orders/orders.json
 *     npm run demo -- my-orders.json  orders of your own
 *     npm run demo -- --ui            with the dashboard, until Ctrl-C
 *
 * Uses the PostgreSQL of `DATABASE_URL`, else starts one. Tables are in the schema `orders_demo`, and stay.
 */
import { Client } from "duroxide-prisma"
import { Migrator, PrismaProvider } from "duroxide-prisma/prisma"
import { DatabaseServer } from "duroxide-prisma/server"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { audit } from "./demo/audit.ts"
import * as Book from "./demo/book.ts"
import * as Page from "./demo/page.ts"
import { run } from "./demo/run.ts"
import * as Screen from "./demo/screen.ts"
import * as Shop from "./shop.ts"

const schema = "orders_demo"

const { positionals: [givenBook], values: { ui } } = parseArgs({
  allowPositionals: true,
  options: { ui: { type: "boolean", default: false } }
})

const bookFile = givenBook ?? fileURLToPath(new URL("../../../examples/orders/orders.json", import.meta.url))

const demo = Effect.gen(function*() {
  const book = yield* Book.read(bookFile)
  const screen = Screen.make(book.orders.length)
  yield* Effect.addFinalizer(() => Effect.sync(screen.clear))
  screen.line(`${book.orders.length} orders of ${path.relative("", bookFile)}`)
  const { description, url } = yield* DatabaseServer.make()
  screen.line(description)
  const applied = yield* Effect.provide(Migrator.migrate({ url, schema }), Logger.layer([]))
  screen.line(`schema ${schema}: ${applied.length === 0 ? "is up to date" : `${applied.length} migrations applied`}`)

  if (ui) screen.line(yield* Page.open({ url, schema }))
  const Store = PrismaProvider.layer({ url, schema, migrate: "none" })
  const App = Layer.merge(Client.layer, Shop.layer({ url, schema })).pipe(Layer.provide(Store))
  const problems = yield* Effect.gen(function*() {
    const workerFile = fileURLToPath(new URL("./worker.js", import.meta.url))
    const result = yield* run({ book, url, schema, workerFile, tell: screen.tell })
    const report = yield* audit(book, result)
    screen.line(Screen.table(result, report))
    if (report.problems.length > 0 && result.log !== "") screen.line(`The workers logged:\n${result.log}`)
    return report.problems
  }).pipe(Effect.provide(App))

  for (const problem of problems) screen.line(Screen.red(`NOT as expected: ${problem}`))
  if (problems.length === 0) {
    screen.line(Screen.green("Every order ended as expected, and every effect was applied exactly once."))
  }
  if (ui) return yield* Effect.never
  return problems.length === 0 ? 0 : 1
}).pipe(Effect.scoped)

const fiber = Effect.runFork(demo)

const stop = () => fiber.interruptUnsafe()
process.once("SIGINT", stop).once("SIGTERM", stop).once("SIGHUP", stop)
process.stdout.on("error", stop) // the reader has closed the pipe

fiber.addObserver((exit) => {
  if (Exit.isSuccess(exit)) process.exit(exit.value)
  if (Cause.hasInterruptsOnly(exit.cause)) process.exit(130)
  // Expected failures say what to do; unexpected ones are shown with their trace.
  const failure = exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error
  console.error(failure instanceof Error ? `The demo failed: ${failure.message}` : Cause.pretty(exit.cause))
  process.exit(1)
})
