/**
 * Settings of the services, from the environment. A service reads those that it uses and fails to start without them.
 */
import { Config } from "effect"

/** Tasks, attempts, outbox, datasets, and with the profile `postgresql` the queues. */
export const stateUrl = Config.Redacted("STATE_DATABASE_URL")

/** What the application stores itself. Another schema (`?schema=`), database or server than the state. */
export const dataUrl = Config.Redacted("DATA_DATABASE_URL")

export const profile = Config.Literals(["postgresql", "sqs"], "QUEUE").pipe(Config.withDefault("postgresql"))

/** Absent on AWS: the SDK then finds endpoint, region and credentials by itself. */
export const sqsEndpoint = Config.option(Config.String("SQS_ENDPOINT"))
export const s3Endpoint = Config.option(Config.String("S3_ENDPOINT"))

export const bucket = Config.String("S3_BUCKET").pipe(Config.withDefault("lite"))

/** 0: any free port, which the process reports to its parent. */
export const port = Config.Int("PORT").pipe(Config.withDefault(0))

/** Signs webhooks, in both directions. */
export const webhookSecret = Config.Redacted("WEBHOOK_SECRET")

/** Receives a webhook for each version that becomes active. */
export const subscriberUrl = Config.String("SUBSCRIBER_URL")

/** With it, deliveries leave through the egress gateway. */
export const egressUrl = Config.option(Config.String("EGRESS_URL"))

/** Origins that the egress gateway may call, separated by commas. */
export const egressAllow = Config.String("EGRESS_ALLOW")

/** When the census is due; with six fields the first one is seconds. */
export const censusCron = Config.String("CENSUS_CRON").pipe(Config.withDefault("0 * * * *"))
