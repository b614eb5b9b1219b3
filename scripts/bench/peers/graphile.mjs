// graphile-worker as a bare queue: the same jobs, without an orchestration. One call adds the jobs of an orchestration,
// which has ended when all of them have run; in a row, each job adds the next. Nothing is stored of results, and there
// are no timers.

import { Logger, makeWorkerUtils, run, runMigrations } from "graphile-worker"

/** Slots where the load names none. */
const manySlots = 20

export async function open({ load, url }) {
  const logger = new Logger(() => (level, message) => /error/.test(level) && console.error(message))
  const concurrentJobs = load.slots ?? manySlots
  await runMigrations({ connectionString: url, logger })
  const utils = await makeWorkerUtils({ connectionString: url, logger })
  const { text } = load
  const running = new Map()
  const job = (id) => ({ identifier: "step", payload: { id, text }, maxAttempts: 1 })
  const runner = await run({
    preset: {
      worker: {
        connectionString: url,
        concurrentJobs,
        maxPoolSize: 10,
        logger,
        ...(load.slots === undefined && (load.inFlight > 1 || load.jobs > 1) &&
          { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 })
      }
    },
    noHandleSignals: true,
    taskList: {
      step: async ({ id }) => {
        if (load.activityMs > 0) await new Promise((resolve) => setTimeout(resolve, load.activityMs))
        const orchestration = running.get(id)
        if (orchestration === undefined) return // of an earlier window
        orchestration.left--
        if (orchestration.left > 0 && load.inARow) await utils.addJobs([job(id)])
        if (orchestration.left === 0) {
          running.delete(id)
          orchestration.end()
        }
      }
    }
  })
  return {
    execute: (id) =>
      new Promise((resolve, reject) => {
        if (load.activities === 0) return reject(new Error("graphile-worker has no timers that jobs wait for"))
        running.set(id, { left: load.activities, end: resolve })
        utils.addJobs(Array.from({ length: load.inARow ? 1 : load.activities }, () => job(id))).catch(reject)
      }),
    close: async () => {
      await runner.stop()
      await utils.release()
    }
  }
}
