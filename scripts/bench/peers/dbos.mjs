// DBOS: workflows whose steps run in the process of the workflow. It has no slots for activities: S1, S2 and S4 limit
// the steps that run at once with a semaphore.

import { DBOS } from "@dbos-inc/dbos-sdk"

export async function open({ load, processName, url }) {
  const { text } = load
  const slot = slots(load.slots ?? Number.POSITIVE_INFINITY)
  const activity = () =>
    slot(async () => {
      if (load.activityMs > 0) await new Promise((resolve) => setTimeout(resolve, load.activityMs))
      return text
    })
  const flow = DBOS.registerWorkflow(async (given) => {
    if (load.timerMs > 0) await DBOS.sleep(load.timerMs)
    const step = (i) => DBOS.runStep(activity, { name: `step ${i}` })
    if (load.inARow) { for (let i = 0; i < load.activities; i++) await step(i) }
    else await Promise.all(Array.from({ length: load.activities }, (_, i) => step(i)))
    return given
  }, { name: "flow" })
  DBOS.setConfig({
    name: "bench",
    systemDatabaseUrl: url,
    systemDatabasePoolSize: 20,
    executorID: processName,
    runAdminServer: false,
    logLevel: "error"
  })
  await DBOS.launch()
  return {
    execute: async (workflowID) => {
      const handle = await DBOS.startWorkflow(flow, { workflowID })(text)
      await handle.getResult()
    },
    close: () => DBOS.shutdown()
  }
}

function slots(free) {
  const waiting = []
  return async (run) => {
    if (free > 0) free--
    else await new Promise((resolve) => waiting.push(resolve))
    try {
      return await run()
    } finally {
      const next = waiting.shift()
      if (next === undefined) free++
      else next()
    }
  }
}
