/**
 * Each incident of the page happens in a store, and its commands are run there, in order.
 */
import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { blocksOf, check } from "./consoleBlocks.ts"

const Charge = Activity.make("Charge", { payload: Schema.String, error: Schema.String })
const Render = Activity.make("Render", { tag: "gpu" })
const Approved = Signal.make("Approved")
const Trip = Orchestration.make("Trip", { payload: Schema.String, error: Schema.String })
const Trip2 = Orchestration.make("Trip", { version: "2.0.0" })

/** What each trip does first; they were started in this order. */
const firsts: Record<string, Effect.Effect<void, string, Orchestration.Instance>> = {
  deploy: Approved.wait,
  failed: Charge.execute("failed"),
  retries: Charge.with({ retry: { schedule: Schedule.spaced("1 hour"), times: 3 } }).execute("retries"),
  waits: Approved.wait,
  renders: Render.execute(),
  sleeps: Effect.sleep("90 days")
}

const application = (
  url: string,
  build: string,
  first: (payload: string) => Effect.Effect<void, string, Orchestration.Instance>
) =>
  Runtime.layer({ orchestrations: [Trip], activities: [Charge, Render] }).pipe(
    Layer.provide([
      Trip.toLayer(first),
      Charge.toLayer((payload) => build === "3f9c2d1" ? Effect.fail(`the bank is down (${payload})`) : Effect.void),
      Render.toLayer(() => Effect.void),
      RuntimeConfig.layer({ build })
    ]),
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer({ url })),
    Layer.provideMerge(Logger.layer([]))
  )

const until = (id: string, tag: string) =>
  Effect.flatMap(Admin.Admin, (admin) => waitUntil(Effect.map(admin.explain(id), ({ cause }) => cause._tag === tag)))

it.layer(PgServer.layer, { excludeTestServices: true })("docs/incidents.md", (it) => {
  it.effect("its commands print what it says", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.PgServer
      // The release before the deploy, while the bank is down.
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        for (const payload of Object.keys(firsts)) yield* client.start(Trip, { instanceId: `trip-${payload}`, payload })
        yield* client.start(Trip2, { instanceId: "trip-new" })
        yield* until("trip-deploy", "Signal")
        yield* until("trip-failed", "Ended")
        yield* until("trip-retries", "Retries")
        yield* until("trip-waits", "Signal")
        yield* until("trip-renders", "ActivityUnserved")
        yield* until("trip-sleeps", "Timer")
        yield* until("trip-new", "Unserved")
      }).pipe(Effect.provide(application(url, "3f9c2d1", (payload) => firsts[payload]!)))
      // The deploy has changed the code of a trip that waits; the signal arrives.
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.send(Approved, "trip-deploy")
        yield* until("trip-deploy", "Blocked")
        const blocks = blocksOf(Docs.read("docs/incidents.md"))
        assert.isAtLeast(blocks.length, 12)
        for (const block of blocks) yield* check(block, url)
      }).pipe(
        Effect.provide(
          application(url, "77ab031", (payload) => payload === "deploy" ? Effect.sleep("1 day") : firsts[payload]!)
        )
      )
    }))
})
