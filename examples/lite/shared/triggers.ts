/**
 * What creates tasks from outside: the clock, and webhooks of others. Dispatcher, gateway and scheduler share them.
 */
import { Trigger } from "duroxide-prisma/recipes/triggers"
import { Effect } from "effect"
import { Census } from "./jobs.ts"
import * as Settings from "./settings.ts"

/** Counts the records at each instant of the cron expression. */
export const censusByCron = Effect.map(
  Settings.censusCron,
  (cron) => Trigger.cron("census", { cron, task: Census, payload: () => ({ reason: "cron" }) })
)

/** Counts the records when another party asks for it. */
export const censusByWebhook = Effect.map(
  Settings.webhookSecret,
  (secret) => Trigger.webhook("census", { secret, task: Census, payload: () => ({ reason: "webhook" }) })
)
