/**
 * What starts work from outside: the clock, and webhooks of others.
 */
import { Trigger } from "duroxide-prisma/recipes/triggers"
import { Schedules } from "duroxide-prisma/schedules"
import { Effect } from "effect"
import { Census } from "./jobs.ts"
import * as Settings from "./settings.ts"

/** Counts the records at the times of a cron expression. */
export const census = Effect.map(
  Settings.censusCron,
  (cron) =>
    Schedules.make("census", {
      timing: Schedules.cron(cron),
      start: Census,
      payload: { reason: "cron" },
      overlap: "allow"
    })
)

/** Counts the records when another party asks for it. */
export const censusByWebhook = Effect.map(
  Settings.webhookSecret,
  (secret) => Trigger.webhook("census", { secret, task: Census, payload: () => ({ reason: "webhook" }) })
)
