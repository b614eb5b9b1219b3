// A runtime process of a chaos run: `node worker.js <JSON of Options>`. Runs until SIGTERM; prints `ready` when it serves.
import { RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as definitions from "./definitions.ts"

interface Options extends definitions.Served {
  readonly url: string
  /** Length of both locks, milliseconds; the defaults unless set. */
  readonly lockMs?: number
  /** The default unless set. */
  readonly optimisticTurns?: boolean
  /** The default unless set. */
  readonly statementTimeoutMs?: number
}

const lookIntervalMs = 500

const { lockMs, optimisticTurns, statementTimeoutMs, url, ...served } = JSON.parse(process.argv[2]!) as Options

const App = definitions.runtime(served).pipe(
  Layer.provide(
    RuntimeConfig.layer({
      ...(optimisticTurns !== undefined && { optimisticTurns }),
      ...(lockMs !== undefined && { orchestrationLockTimeout: lockMs, workerLockTimeout: lockMs })
    })
  ),
  Layer.provide(PrismaProvider.layer({ url, migrate: "verify", statementTimeout: statementTimeoutMs }))
)

// An overloaded machine is not the fault of the runtime: the audit excuses what happened during such a time.
const note = definitions.journal(served.effects)
let lastLook = performance.now()
setInterval(() => {
  const late = performance.now() - lastLook - lookIntervalMs
  if (late > lookIntervalMs) note({ event: "block", ms: late })
  lastLook = performance.now()
}, lookIntervalMs).unref()

const main = Effect.runFork(Effect.scoped(Effect.gen(function*() {
  yield* Layer.build(App)
  yield* Effect.sync(() => process.stdout.write("ready\n"))
  return yield* Effect.never
})))

process.on("SIGTERM", () => {
  void Effect.runPromise(Fiber.interrupt(main)).then(() => process.exit(0))
})
main.addObserver((exit) => {
  if (exit._tag === "Failure") process.stderr.write(`${String(exit.cause)}\n`)
})
