/**
 * The definitions of triggers, and the run of a cron trigger.
 */
import * as Clock from "effect/Clock"
import type * as EffectCron from "effect/Cron"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { PayloadMismatch, PayloadTooLarge } from "../../model/shared/payload.ts"
import { PayloadCodec } from "../../provider/PayloadCodec.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import * as sealedTasks from "../../tasks/shared/sealedDriver.ts"
import { creator } from "../../tasks/shared/service.ts"
import type { NewTask } from "../../tasks/TaskDriver.ts"
import type { Tasks } from "../../tasks/Tasks.ts"
import type { Creator } from "../../tasks/Tasks.ts"
import { Topic, Topics } from "../../waking/Topics.ts"
import { TriggerDriver } from "../TriggerDriver.ts"
import { dueInstants } from "./cronInstants.ts"
import type { CatchUp } from "./cronInstants.ts"

/**
 * Why a task could not be created.
 *
 * @category models
 * @since 0.2.0
 */
export type Failure = PayloadMismatch | PayloadTooLarge | ProviderError

/**
 * A task for each instant of a cron expression.
 *
 * @category models
 * @since 0.2.0
 */
export interface Cron {
  readonly name: string
  readonly schedule: EffectCron.Cron
  readonly catchUp: CatchUp
  /** Creates the tasks of these instants, unless they exist already, and returns their ids in the same order. */
  readonly create: (
    tasks: Pick<Creator, "createMany">,
    instants: ReadonlyArray<Date>
  ) => Effect.Effect<ReadonlyArray<string>, Failure>
  /**
   * Creates the task of one instant, unless it exists already, and returns its id. Fails with the reason `InvalidInput`
   * if the expression does not have this instant.
   */
  readonly fire: (scheduledAt: Date) => Effect.Effect<string, Failure, Tasks>
}

/**
 * An event that another system has sent, after its signature was verified.
 *
 * @category models
 * @since 0.2.0
 */
export interface WebhookEvent {
  /** The sender's id of the event, the same when it is sent again. */
  readonly id: string
  /** When it was sent, by the sender's clock. */
  readonly sentAt: Date
  /** The body, parsed as JSON. */
  readonly body: unknown
}

/**
 * A task for each event that another system sends.
 *
 * @category models
 * @since 0.2.0
 */
export interface Webhook {
  readonly name: string
  /** The keys of the sender's secrets. */
  readonly keys: ReadonlyArray<Uint8Array>
  /** Creates the task of an event, unless it exists already, and returns its id. */
  readonly create: (tasks: Pick<Creator, "create">, event: WebhookEvent) => Effect.Effect<string, Failure>
}

/**
 * Creates the tasks of all instants that are due and have not fired: those up to `until`, which defaults to now.
 * Returns the instants, and whether there are more, which a further call fires: one call creates at most 1,000 tasks.
 *
 * A new trigger begins with its first run, which fires only the newest instant, if it is at most a minute older than
 * `until`: a first run for a time that is long past makes the trigger begin then. The table `queue_triggers` has the
 * time up to which each trigger has fired.
 *
 * @category operations
 * @since 0.2.0
 */
export const run = (
  trigger: Cron,
  options?: { readonly until?: Date | undefined }
): Effect.Effect<
  { readonly instants: ReadonlyArray<Date>; readonly hasMore: boolean },
  Failure,
  TriggerDriver | Topics
> =>
  Effect.gen(function*() {
    const driver = yield* TriggerDriver
    const topics = yield* Topics
    const codec = Option.getOrUndefined(yield* Effect.serviceOption(PayloadCodec))
    const untilMs = options?.until?.getTime() ?? (yield* Clock.currentTimeMillis)
    while (true) {
      const firedUntilMs = yield* driver.firedUntil(trigger.name)
      const due = dueInstants({ schedule: trigger.schedule, catchUp: trigger.catchUp, firedUntilMs, untilMs })
      let isFirst = false
      const fire = (tasks: ReadonlyArray<NewTask>) =>
        Effect.map(driver.fire(trigger.name, firedUntilMs, due.untilMs, tasks), (created) => {
          isFirst = created !== null
          return created ?? []
        })
      yield* due.instants.length === 0 ? fire([]) : trigger.create(
        creator(sealedTasks.creating({ create: fire }, codec).create),
        due.instants
      )
      if (isFirst) {
        if (due.instants.length > 0) yield* topics.announce([{ topic: Topic.outbox }])
        return { instants: due.instants, hasMore: due.hasMore }
      }
      // Another process has fired it since.
    }
  })
