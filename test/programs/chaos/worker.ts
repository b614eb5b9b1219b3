// A worker process of a chaos run: `node worker.js <JSON of Options>`. Runs until SIGTERM; prints `ready` when it
// serves.
import { RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { TaskWorker } from "duroxide-prisma/tasks"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as definitions from "./definitions.ts"
import * as tasks from "./tasks.ts"

interface Options extends definitions.Served {
  readonly url: string
  /** What this process does; a runtime unless set. */
  readonly parts?: ReadonlyArray<Part>
  /** Length of both locks, milliseconds; the defaults unless set. */
  readonly lockMs?: number
  /** The default unless set. */
  readonly optimisticTurns?: boolean
  /** The default unless set. */
  readonly statementTimeoutMs?: number
}

export type Part = "runtime" | "tasks" | "publisher" | "consumer"

const lookIntervalMs = 500

const { lockMs, optimisticTurns, parts = ["runtime"], statementTimeoutMs, url, ...served } = JSON.parse(
  process.argv[2]!
) as Options

const note = definitions.journal(served.effects)
const pool = tasks.applicationPool(url)

const Database = parts.includes("runtime")
  ? PrismaProvider.layer({ url, migrate: "verify", statementTimeout: statementTimeoutMs })
  : PrismaProvider.layerDatabase({ url, migrate: "verify", statementTimeout: statementTimeoutMs })

const Config = RuntimeConfig.layer({
  ...(optimisticTurns !== undefined && { optimisticTurns }),
  ...(lockMs !== undefined && { orchestrationLockTimeout: lockMs, workerLockTimeout: lockMs })
})

const layerOf = {
  runtime: definitions.runtime(served).pipe(Layer.provide(Config)),
  tasks: tasks.worker(note, pool, served.name),
  publisher: tasks.publisher,
  consumer: tasks.consumer(note, pool)
}

// The parts share one pool. Which services they need depends on the options, which the types do not know.
const App = Layer.mergeAll(
  Layer.empty,
  ...parts.map((part) => layerOf[part] as Layer.Layer<never, unknown, never>)
).pipe(Layer.provide(tasks.queues), Layer.provide(Database as Layer.Layer<PrismaProvider.DatabaseServices, unknown>))

// An overloaded machine is not the fault of the runtime: the audit excuses what happened during such a time.
let lastLook = performance.now()
setInterval(() => {
  const late = performance.now() - lastLook - lookIntervalMs
  if (late > lookIntervalMs) note({ event: "block", ms: late })
  lastLook = performance.now()
}, lookIntervalMs).unref()

const main = Effect.runFork(Effect.scoped(Effect.gen(function*() {
  const services = yield* Layer.build(App)
  yield* Effect.sync(() => process.stdout.write("ready\n"))
  const worker = Context.getOption(services as Context.Context<TaskWorker.TaskWorker>, TaskWorker.TaskWorker)
  return yield* worker._tag === "Some" ? worker.value.failure : Effect.never
})))

process.on("SIGTERM", () => {
  void Effect.runPromise(Fiber.interrupt(main)).then(() => process.exit(0))
})
main.addObserver((exit) => {
  if (Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)) return
  process.stderr.write(`${String(exit.cause)}\n`)
  process.exit(1)
})
