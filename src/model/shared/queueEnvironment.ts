/**
 * The environment variables of queues, outbox and tasks.
 */
import * as Config from "effect/Config"
import * as Environment from "./environment.ts"

const hour = 3_600_000
const year = 365 * 24 * hour
const retention = Environment.duration(0, 10 * year)

const ofQueue = <A>(option: string, kind: Environment.Kind<A>) => Environment.variable("DUROXIDE_QUEUE_", option, kind)
const ofOutbox = <A>(option: string, kind: Environment.Kind<A>) =>
  Environment.variable("DUROXIDE_OUTBOX_", option, kind)
const ofTask = <A>(option: string, kind: Environment.Kind<A>) => Environment.variable("DUROXIDE_TASK_", option, kind)

/** The queues are declared in code; the clock of tests has no variable. */
export const queue = {
  pollInterval: ofQueue("pollInterval", Environment.duration(1)),
  fallbackPollInterval: ofQueue("fallbackPollInterval", Environment.duration(1))
}

export const publisher = {
  batchSize: ofOutbox("batchSize", Environment.count(1, 1000)),
  lease: ofOutbox("lease", Environment.duration(1000, 12 * hour)),
  keepSent: ofOutbox("keepSent", retention)
}

/** The tasks are declared in code. */
export const worker = {
  concurrency: ofTask("concurrency", Environment.count(1, 1000)),
  workerId: ofTask("workerId", Environment.text),
  gracePeriod: ofTask("gracePeriod", Environment.duration(0)),
  visibilityTimeout: ofTask("visibilityTimeout", Environment.duration(1, 12 * hour)),
  keepEnded: ofTask("keepEnded", retention),
  keepDead: ofTask("keepDead", retention)
}

export const queueConfig = Config.map(Environment.config(queue), ({ options }) => options)
export const publisherConfig = Config.map(Environment.config(publisher), ({ options }) => options)
export const workerConfig = Config.map(Environment.config(worker), ({ options }) => options)
