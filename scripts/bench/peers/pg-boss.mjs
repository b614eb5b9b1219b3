// pg-boss as a bare queue, as graphile.mjs: one call adds the jobs of an orchestration, which has ended when all of
// them have run; in a row, each job adds the next. Workers poll at most twice a second, so this process notifies them
// of each insert, and of a full batch.

import PgBoss from "pg-boss"

/** Jobs of one fetch, and of one completion, where the load names no slots. */
const manyJobs = 500
const workers = 2

export async function open({ load, url }) {
  const boss = new PgBoss({ connectionString: url, max: 10, schedule: false })
  boss.on("error", (error) => console.error(error))
  await boss.start()
  await boss.createQueue("step")
  const { text } = load
  const running = new Map()
  const ids = []
  const wake = () => ids.forEach((id) => boss.notifyWorker(id))
  const add = async (id, count) => {
    await boss.insert(Array.from({ length: count }, () => ({ name: "step", data: { id, text }, retryLimit: 0 })))
    wake()
  }
  const batchSize = load.slots ?? manyJobs
  const run = async ({ data: { id } }) => {
    if (load.activityMs > 0) await new Promise((resolve) => setTimeout(resolve, load.activityMs))
    const orchestration = running.get(id)
    if (orchestration === undefined) return // of an earlier window
    orchestration.left--
    if (orchestration.left > 0 && load.inARow) await add(id, 1)
    if (orchestration.left === 0) {
      running.delete(id)
      orchestration.end()
    }
  }
  for (let i = 0; i < (load.slots === undefined ? workers : 1); i++) {
    ids.push(
      await boss.work("step", { batchSize, pollingIntervalSeconds: 0.5 }, async (jobs) => {
        if (jobs.length === batchSize) wake()
        await Promise.all(jobs.map(run))
      })
    )
  }
  return {
    execute: (id) =>
      new Promise((resolve, reject) => {
        if (load.activities === 0) return reject(new Error("pg-boss has no timers that jobs wait for"))
        running.set(id, { left: load.activities, end: resolve })
        add(id, load.inARow ? 1 : load.activities).catch(reject)
      }),
    close: () => boss.stop()
  }
}
