/**
 * Measures how soon the instances of a killed process continue in another one:
 *
 *     npm run bench -- recovery [--instances 10000]
 *
 * Each instance runs five activities and waits for a signal, warm in the first process. Then all are signalled: without
 * a kill; after `kill -9` of that process, so that another one replays each of them; and with that `kill -9` when half
 * have ended, so that what the first one held waits for the ends of its locks. The last line is one JSON object:
 * seconds from the first signal, or from the kill, until the last has ended.
 */
import { Activity, Client, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as Schema from "effect/Schema"
import { fork } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import * as pg from "pg"
import * as servers from "./server.ts"
import { storeOf } from "./store.ts"

const Step = Activity.make("Step", { payload: Schema.Int, success: Schema.Int })
const Signalled = Signal.make("Signalled")
const Flow = Orchestration.make("Flow", { success: Schema.Int })

const FlowLive = Flow.toLayer(Effect.fn(function*() {
  yield* Effect.forEach([1, 2, 3, 4, 5], (n) => Step.execute(n), { discard: true })
  yield* Orchestration.setCustomStatus("waiting")
  yield* Signalled.wait
  return yield* Step.execute(6)
}))

const serve = (url: string) =>
  ManagedRuntime.make(
    Runtime.layer({ orchestrations: [Flow], activities: [Step] }).pipe(
      Layer.provide([FlowLive, Step.toLayer((n) => Effect.succeed(n))]),
      Layer.provide(RuntimeConfig.layer({ orchestrationConcurrency: 100, workerConcurrency: 100 })),
      Layer.provide(storeOf({ url, pollMs: null })),
      Layer.provide(Logger.layer([]))
    )
  )

if (process.send !== undefined) {
  // Never closed: it is killed.
  await serve(process.argv[2]!).runPromise(Effect.void)
  process.send("serves")
  await new Promise(() => {})
}

const { values } = parseArgs({ options: { instances: { type: "string", default: "10000" } } })
const instances = Number(values.instances)
if (!(instances >= 2)) {
  console.error("usage: npm run bench -- recovery [--instances 10000]")
  process.exit(2)
}
const ids = Array.from({ length: instances }, (_, n) => `flow ${n}`)

/** A process that serves. */
const start = async (url: string) => {
  const child = fork(fileURLToPath(import.meta.url), [url])
  await Promise.race([
    once(child, "message"),
    once(child, "exit").then(() => Promise.reject(new Error("a process ended before it served")))
  ])
  const kill = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return
    child.kill("SIGKILL")
    await once(child, "exit")
  }
  return { kill }
}

const server = await servers.open()
console.log(`recovery: ${instances} instances. ${server.description}`)

const measure = async (kills: "never" | "before the signals" | "when half have ended") => {
  const url = await server.create(`bench_${process.pid}_${kills.replaceAll(" ", "_")}`)
  const onlooker = new pg.Client(url)
  const runtime = ManagedRuntime.make(
    Client.layer.pipe(Layer.provide(storeOf({ url, pollMs: null })), Layer.provide(Logger.layer([])))
  )
  const client = await runtime.runPromise(Client.Client)
  await onlooker.connect()
  const reach = async (count: number, condition: string) => {
    for (;;) {
      const { rows: [row] } = await onlooker.query<{ count: number }>(
        `SELECT count(*)::int AS count FROM instances WHERE ${condition}`
      )
      if (row!.count >= count) return
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
  const first = await start(url)
  await runtime.runPromise(client.startMany(Flow, ids.map((instanceId) => ({ instanceId }))))
  await reach(instances, "custom_status = 'waiting'")
  const others = kills === "never" ? [] : [await start(url)]
  if (kills === "before the signals") await first.kill()
  let begun = performance.now()
  const sent = runtime.runPromise(
    Effect.forEach(ids, (id) => client.send(Signalled, id), { concurrency: "unbounded", discard: true })
  )
  if (kills === "when half have ended") {
    await reach(instances / 2, "status = 'Completed'")
    await first.kill()
    begun = performance.now()
  }
  await sent
  await reach(instances, "status = 'Completed'")
  const seconds = Number(((performance.now() - begun) / 1000).toPrecision(3))
  console.log(`  killed ${kills}: all have ended after ${seconds} s`)
  for (const each of [first, ...others]) await each.kill()
  await runtime.dispose()
  await onlooker.end()
  return seconds
}

const [never, waiting, busy] = [
  await measure("never"),
  await measure("before the signals"),
  await measure("when half have ended")
]
await server.close()
console.log(JSON.stringify({ scenario: "recovery", instances, seconds: { never, waiting, busy } }))
process.exit(0)
