/**
 * The whole stack on this machine, each service a process. While data come in, the dispatcher and a worker are killed, and
 * another worker is paused until its task has been given to the next one.
 */
import { Clock, Deferred, Effect, Redacted } from "effect"
import { randomBytes } from "node:crypto"
import * as path from "node:path"
import * as Databases from "../shared/databases.ts"
import * as Harm from "./harm.ts"
import * as Processes from "./processes.ts"

export interface Options {
  /** A database. State and data get a schema each, which is emptied first and stays afterwards. */
  readonly url: Redacted.Redacted<string>
  readonly queue: "postgresql" | "sqs"
  readonly records: number
  /** Holds this example, compiled. */
  readonly folder: string
  /** Receives lines, and the table of the client. */
  readonly print: (text: string) => void
}

/** Succeeds if the client found nothing missing and nothing doubled. */
export const run = Effect.fn("lite.run")(function*({ folder, print, queue, records, url }: Options) {
  const startedAt = yield* Clock.currentTimeMillis
  const say = (text: string) =>
    Effect.map(
      Clock.currentTimeMillis,
      (now) => print(`${((now - startedAt) / 1000).toFixed(1).padStart(5)} s  ${text}\n`)
    )

  // The first process that fails ends the run, and so does a service that ends without having been asked to.
  const trouble = yield* Deferred.make<never, Processes.ProcessEnded>()
  const watched = <A>(watch: Effect.Effect<A, Processes.ProcessEnded>) =>
    Effect.forkScoped(Effect.tapError(watch, (error) => Deferred.fail(trouble, error)))
  const launch = (options: Processes.Options) => Effect.tap(Processes.start(options), ({ watch }) => watched(watch))

  const story = Effect.gen(function*() {
    const objectStore = yield* launch({
      file: path.join(folder, "demo/objectStore.js"),
      name: "object_store",
      environment: {}
    })
    const endpoint = `http://127.0.0.1:${yield* objectStore.ready}`
    const settings = {
      STATE_DATABASE_URL: withSchema(url, schemas.state),
      DATA_DATABASE_URL: withSchema(url, schemas.data),
      QUEUE: queue,
      S3_ENDPOINT: endpoint,
      SQS_ENDPOINT: endpoint,
      AWS_REGION: "us-east-1",
      AWS_ACCESS_KEY_ID: "any",
      AWS_SECRET_ACCESS_KEY: "any",
      AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED: "true", // on Node 20
      WEBHOOK_SECRET: `whsec_${randomBytes(24).toString("base64")}`,
      CENSUS_CRON: "*/2 * * * * *"
    }
    const service = (name: string, more: Readonly<Record<string, string>>): Processes.Options => ({
      file: path.join(folder, "services/main.js"),
      name,
      environment: { ...settings, ...more }
    })
    const start = (name: string, more: Readonly<Record<string, string>> = {}) => launch(service(name, more))
    /** Starts a service that others call, and waits for its address. */
    const serve = Effect.fnUntraced(function*(name: string, more: Readonly<Record<string, string>> = {}) {
      const process = yield* start(name, more)
      const port = yield* process.ready
      return { process, port, url: `http://127.0.0.1:${port}` }
    })

    const state = yield* Databases.open(Redacted.make(settings.STATE_DATABASE_URL))
    const data = yield* Databases.open(Redacted.make(settings.DATA_DATABASE_URL))
    yield* state.query(`DROP SCHEMA IF EXISTS ${schemas.state}, ${schemas.data} CASCADE`)
    yield* Effect.flatMap(Processes.start(service("setup", {})), ({ end }) => end)
    yield* say(`set up: tables, bucket${queue === "sqs" ? ", queues" : ""}`)

    const [dispatcher, gateway, query, first, second] = yield* Effect.all([
      serve("dispatcher"),
      serve("gateway"),
      serve("query_service"),
      start("platform_worker"),
      start("platform_worker")
    ], { concurrency: "unbounded" })
    const workers = [first, second]
    yield* Effect.forEach(workers, ({ ready }) => ready)
    const halfWay = yield* Deferred.make<void>()
    const client = yield* Processes.start({
      ...service("client", {
        GATEWAY_URL: gateway.url,
        QUERY_URL: query.url,
        RECORDS: String(records),
        // Small data sets have as many batches, so that services are busy for as long.
        BATCH_SIZE: String(Math.ceil(records / 60))
      }),
      onPrint: print,
      onMessage: () => Deferred.doneUnsafe(halfWay, Effect.void)
    })
    yield* watched(client.end)
    const subscriber = `http://127.0.0.1:${yield* client.ready}`
    const egress = yield* serve("rpc_egress_gateway", { EGRESS_ALLOW: subscriber })
    const others = yield* Effect.all([
      start("delivery_service", { SUBSCRIBER_URL: `${subscriber}/deliveries`, EGRESS_URL: egress.url }),
      start("scheduler")
    ])
    yield* say("all services run")

    yield* Deferred.await(halfWay)
    const killed = yield* Harm.kill({ state, data, workers, say }, dispatcher.process)
    yield* Effect.sleep("500 millis")
    const again = yield* Effect.all([start("dispatcher", { PORT: String(dispatcher.port) }), start("platform_worker")])
    yield* Effect.forEach(again, ({ ready }) => ready)
    yield* say("dispatcher and worker are started again")
    yield* client.tell("continue")
    const [newDispatcher, newWorker] = again
    const alive = [...workers.filter((worker) => worker !== killed), newWorker]
    yield* Harm.delay({ state, data, workers: alive, say })
    yield* client.tell("finish")

    yield* client.end
    // In good order: a service that cannot stop fails the run.
    yield* Effect.forEach(
      [...others, newDispatcher, ...alive, egress.process, query.process, gateway.process, objectStore],
      ({ stop }) => stop,
      { concurrency: "unbounded", discard: true }
    )
    yield* say("all services stopped")
  })
  return yield* Effect.raceFirst(story, Deferred.await(trouble))
}, Effect.scoped)

const schemas = { state: "lite_state", data: "lite_data" }

const withSchema = (url: Redacted.Redacted<string>, schema: string) => {
  const address = new URL(Redacted.value(url))
  address.searchParams.set("schema", schema)
  return address.toString()
}
