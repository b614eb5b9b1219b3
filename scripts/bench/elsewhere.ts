/**
 * Work that other processes do: this one starts an orchestration and waits for it, children serve it. What is timed is
 * how long one of them took to notice the other.
 */
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as References from "effect/References"
import * as Schema from "effect/Schema"
import { fork } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import pg from "pg"
import type { Contender, Load } from "./contender.ts"
import { storeOf } from "./store.ts"

const Step = Activity.make("Step", { payload: Schema.Void, success: Schema.Number })
const Flow = Orchestration.make("Flow", {
  payload: Schema.Void,
  success: Schema.Struct({ claimedAtMs: Schema.Number, endedAtMs: Schema.Number })
})

/**
 * `claim`: from the answer to a start until its claim. `end`: from the last activity until the waiter has the result.
 */
export const openElsewhere = async (
  { load: { pollMs, servers }, noticed, url }: {
    readonly url: string
    readonly load: Pick<Load, "pollMs" | "servers">
    readonly noticed: Load["noticed"] & {}
  }
): Promise<Contender> => {
  if (noticed === "round trip") return openRoundTrip(url)
  const runtime = ManagedRuntime.make(
    Client.layer.pipe(Layer.provide(storeOf({ url, pollMs })), Layer.provide(quiet))
  )
  const client = await runtime.runPromise(Client.Client)
  const children = Array.from(
    { length: servers },
    () => fork(fileURLToPath(import.meta.url), [url, JSON.stringify(pollMs)], { stdio: ["ignore", 2, 2, "ipc"] })
  )
  await Promise.all(children.map((child) => once(child, "message")))
  return {
    execute: async (instanceId) => {
      await runtime.runPromise(client.start(Flow, { instanceId, payload: undefined }))
      const startedAtMs = now()
      const { claimedAtMs, endedAtMs } = await runtime.runPromise(client.wait(Flow, instanceId))
      return { ms: noticed === "claim" ? Math.max(0, claimedAtMs - startedAtMs) : now() - endedAtMs }
    },
    close: async () => {
      for (const child of children) child.disconnect()
      await Promise.all(children.map((child) => once(child, "exit")))
      await runtime.dispose()
    }
  }
}

// internal

/** Clock of the machine, milliseconds since the Unix epoch; the two processes and the server share it. */
const now = () => performance.timeOrigin + performance.now()

const quiet = Layer.merge(
  Logger.layer([Logger.withConsoleError(Logger.formatLogFmt)]),
  Layer.succeed(References.MinimumLogLevel, "Warn")
)

/** What a statement costs at least. */
const openRoundTrip = async (url: string): Promise<Contender> => {
  const client = new pg.Client(url)
  await client.connect()
  return {
    execute: async () => {
      const begin = performance.now()
      await client.query({ name: "one", text: "SELECT 1" })
      return { ms: performance.now() - begin }
    },
    close: () => client.end()
  }
}

/** What the child does. */
const serve = async (url: string, pollMs: number | null) => {
  const StepLive = Step.toLayer(() => Effect.sync(now))
  const FlowLive = Flow.toLayer(Effect.fn(function*() {
    // The time of the first turn: the store's clock at its claim, in whole milliseconds.
    const claimedAtMs = yield* Clock.currentTimeMillis
    return { claimedAtMs, endedAtMs: yield* Step.execute() }
  }))
  const runtime = ManagedRuntime.make(
    Runtime.layer({ orchestrations: [Flow], activities: [Step] }).pipe(
      Layer.provide([FlowLive, StepLive]),
      Layer.provide(RuntimeConfig.layer({ orchestrationConcurrency: 16, workerConcurrency: 16 })),
      Layer.provide(storeOf({ url, migrate: "none", pollMs })),
      Layer.provide(quiet)
    )
  )
  await runtime.runPromise(Effect.void)
  process.send!("ready")
  process.once("disconnect", () => void runtime.dispose().then(() => process.exit()))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await serve(process.argv[2]!, JSON.parse(process.argv[3]!) as number | null)
}
