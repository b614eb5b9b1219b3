// Duroxide's Node binding, on either of its stores. The orchestration runs in Rust, which asks JavaScript for the next
// step of a generator: what it yields says what to schedule, and the answer is its outcome.

import { createRequire } from "node:module"

process.env.RUST_LOG = "error"
export const duroxide = createRequire(import.meta.url)("duroxide-linux-x64-gnu")

/**
 * @param {{ load: object }} options
 * @param {{ runtime: (settings: object) => object, client: () => object, manySlots: number, pollMs: number }} store
 *   `manySlots` of each kind run where the load names no number; each looks for work every `pollMs`
 */
export async function open({ load }, store) {
  const payload = JSON.stringify(load.text)
  const step = { type: "activity", name: "Step", input: payload }
  const slots = load.slots ?? store.manySlots

  function* flow(text) {
    if (load.timerMs > 0) yield { type: "timer", delayMs: load.timerMs }
    if (load.inARow) { for (let i = 0; i < load.activities; i++) yield step }
    else if (load.activities > 0) yield { type: "join", tasks: Array.from({ length: load.activities }, () => step) }
    return text
  }

  const runtime = store.runtime({
    orchestrationConcurrency: slots,
    workerConcurrency: slots,
    dispatcherPollIntervalMs: store.pollMs,
    logLevel: "error"
  })
  runtime.setGeneratorDriver(...driver(flow))
  runtime.registerOrchestration("Flow")
  runtime.registerActivity("Step", async (call) => {
    if (load.activityMs > 0) await new Promise((resolve) => setTimeout(resolve, load.activityMs))
    return call.slice(call.indexOf("\n") + 1)
  })
  await runtime.start()
  const client = store.client()
  return {
    execute: async (id) => {
      await client.startOrchestration(id, "Flow", payload)
      const { error, status } = await client.waitForOrchestration(id, 120_000)
      if (status !== "Completed") throw new Error(`${id} is ${status}: ${error}`)
    },
    close: () => runtime.shutdown(1000)
  }
}

/** `create`, `next` and `dispose`, as the binding calls them. */
function driver(flow) {
  const generators = new Map()
  let lastId = 0
  const drive = (id, { done, value }) => {
    if (!done) return JSON.stringify({ status: "yielded", generatorId: id, task: value })
    generators.delete(id)
    return JSON.stringify({ status: "completed", output: JSON.stringify(value) })
  }
  return [
    (payload) => {
      const id = ++lastId
      const steps = flow(JSON.parse(JSON.parse(payload).input))
      generators.set(id, steps)
      return drive(id, steps.next())
    },
    (payload) => {
      const { generatorId, result } = JSON.parse(payload)
      return drive(generatorId, generators.get(generatorId).next(result))
    },
    (id) => {
      generators.delete(Number(id))
      return "ok"
    }
  ]
}
