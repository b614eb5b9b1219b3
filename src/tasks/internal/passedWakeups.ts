/**
 * Wake-ups that lead to no attempt: how long they pause before they come again, if they do.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Metrics from "../../model/Metrics.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import { growingMs } from "../../model/shared/trouble.ts"
import type { Claim, Claimed } from "../TaskDriver.ts"

/** The pause before the wake-up comes again; undefined if it is dropped. */
export type Pass = (
  answer: Exclude<Claim, Claimed>,
  deliveryCount: number
) => Effect.Effect<Duration.Duration | undefined>

/** For one worker, which reports each task that it does not serve once. */
export const make = (): Pass => {
  const unserved = new Set<string>()
  return (answer, deliveryCount) => {
    switch (answer.outcome) {
      case "Locked":
        if (deliveryCount >= mostDeliveries) return Effect.succeed(undefined)
        return Effect.succeed(Duration.millis(growingMs(100, 30_000, deliveryCount - 1)))
      case "Suspect":
        // Others of this worker, or another worker, may have room for it soon.
        if (deliveryCount >= mostDeliveries) return Effect.succeed(undefined)
        return Effect.succeed(Duration.millis(growingMs(500, 30_000, deliveryCount - 1)))
      case "NotDue":
        // The wake-up came early. If the task is due much later, its row of the outbox wakes it then.
        return Effect.succeed(answer.dueMs <= soonMs ? Duration.millis(answer.dueMs) : undefined)
      case "Unserved": {
        const isKnown = unserved.has(answer.name)
        unserved.add(answer.name)
        return Effect.logWarning("Task worker: no handler for this task here; its wake-up is given back").pipe(
          Effect.when(Effect.succeed(!isKnown)),
          Effect.annotateLogs({ task_name: answer.name, task_id: answer.id }),
          Effect.as(deliveryCount >= mostDeliveries ? undefined : Duration.millis(unservedPauseMs(deliveryCount)))
        )
      }
      case "Exhausted":
        return Effect.logError("Task worker: task is dead; its last attempt was lost").pipe(
          Effect.annotateLogs({ task_name: answer.name, task_id: answer.id }),
          Effect.andThen(Metric.update(attempts(answer.name, "lost"), 1)),
          Effect.as(undefined)
        )
      default:
        return Effect.succeed(undefined)
    }
  }
}

// internal

const attempts = seriesOf(Metrics.taskAttempts)

const soonMs = 10_000

/**
 * Pause of a wake-up for a task that this worker does not serve. Another worker of the queue gets it soon, even if this
 * one is faster a few times; without such a worker, the pauses grow.
 */
const unservedPauseMs = (deliveryCount: number) => deliveryCount === 1 ? 0 : 50 * 2 ** Math.max(deliveryCount - 5, 0)

/**
 * Deliveries after which a wake-up is dropped, so that a queue with the default of 20 does not make it a dead letter.
 * The sweep wakes the task again, and so does a worker that begins to serve it.
 */
const mostDeliveries = 15
