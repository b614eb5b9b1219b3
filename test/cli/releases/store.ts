/**
 * A store whose instances wait, for releases that may be deployed.
 */
import { Client, Runtime } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as PrismaProvider from "../../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../../utils/PgServer.ts"
import { waitUntil } from "../../utils/waitUntil.ts"
import * as Cli from "../cli.ts"
import { Charge, Decline, Fulfil, Meter } from "./definitions.ts"
import { programs } from "./matching.ts"

/** What no output shows unless it is asked for. */
export const card = "4111-1111"

export const orders = ["order-1", "order-2", "order-3", "order-4", "order-5"]

/** A client and an admin, without a runtime. */
export const services = (url: string) =>
  Client.layer.pipe(Layer.provideMerge(PrismaProvider.layer({ url })), Layer.provideMerge(Logger.layer([])))

/** The release that runs. */
export const application = (url: string) =>
  Runtime.layer({ orchestrations: [Fulfil, Meter, Decline], activities: [Charge] }).pipe(
    Layer.provide([
      programs.orders[0],
      ...programs.others,
      Charge.toLayer(({ card }) => Effect.succeed(`paid by ${card}`))
    ]),
    Layer.provideMerge(services(url))
  )

/**
 * Five orders, the first of which is the newest, and a meter wait for an approval: all turns are stored, and their
 * process has ended.
 */
export const make = Effect.gen(function*() {
  const test = yield* PgServer.database
  yield* Effect.gen(function*() {
    const client = yield* Client.Client
    for (const instanceId of orders) yield* client.start(Fulfil, { instanceId, payload: { card, lines: 2 } })
    yield* client.start(Meter, { instanceId: "meter-1", payload: 1 })
    yield* waitUntil(
      Effect.map(
        test.sql("SELECT FROM history WHERE event_type = 'ExternalSubscribedPersistent'"),
        (rows) => rows.length === orders.length + 1
      )
    )
  }).pipe(Effect.provide(application(test.url)), Effect.orDie)
  yield* test.sql("UPDATE instances SET created_at = now() - right(instance_id, 1)::integer * interval '1 hour'")
  return test
})

/** The file of a release. */
export const module = (name: string) => `test/cli/releases/${name}.ts`

export const preflight = ({ url }: PgServer.TestDatabase, name: string, args = "") =>
  Cli.run(["preflight", module(name), ...args.split(" ").filter((arg) => arg !== "")], { env: { DATABASE_URL: url } })

/** The answer, and the message of the error, if there is one. */
export const preflightJson = (store: PgServer.TestDatabase, name: string, args = "") =>
  Effect.map(preflight(store, name, `${args} --json`), ({ exitCode, stderr, stdout }) => ({
    exitCode,
    // Its last line: progress comes before.
    error: stderr === "" ? undefined : JSON.parse(stderr.trimEnd().split("\n").at(-1)!).error?.message,
    report: JSON.parse(stdout)
  }))
