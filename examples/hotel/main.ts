/**
 * `npm run example -- hotel`, in a clone: a guest whose passport is encrypted, bookings that complete, fail and wait for a
 * person, and a dashboard that shows them. `npm run ui` uses it while one works on the page.
 *
 *     npm run example -- hotel 3600   serves http://localhost:4983/hotel/ for an hour
 */
import { NodeHttpServer } from "@effect/platform-node"
import { Client } from "duroxide-prisma"
import { Dashboard } from "duroxide-prisma/dashboard"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Console, Effect, Layer, Redacted, Schedule } from "effect"
import { HttpRouter, HttpServer } from "effect/http"
import { createServer } from "node:http"
import { Approved, Booking, RuntimeLive } from "./hotel.ts"
import { register } from "./registration.ts"

const seconds = Number(process.argv[2] ?? 3)
const port = process.argv[2] === undefined ? 0 : 4983

/** The token of the dashboard. A real hotel reads it from its configuration. */
const token = "an example of a token"

const DashboardLive = Dashboard.layer({
  path: "/hotel",
  access: Dashboard.bearer([{ name: "reception", role: "operate", token: Redacted.make(token) }]),
  orchestrations: [Booking],
  signals: [Approved]
})

const App = HttpRouter.serve(DashboardLive, { disableLogger: true }).pipe(
  Layer.provideMerge(RuntimeLive),
  Layer.provideMerge(Client.layer),
  Layer.provideMerge(PrismaProvider.layerDefault({ schema: "example_hotel" })),
  Layer.provideMerge(NodeHttpServer.layer(createServer, { port, host: "127.0.0.1" }))
)

const main = Effect.gen(function*() {
  const client = yield* Client.Client
  const { address } = yield* HttpServer.HttpServer
  const origin = HttpServer.formatAddress(address)
  yield* Console.log(`${origin}/hotel/#token=${encodeURIComponent(token)}`)
  const amounts = [120, 80, 640, 313, 300]
  let bookings = 0
  yield* Effect.suspend(() => {
    const number = bookings++
    return client.start(Booking, {
      payload: { guest: `guest ${Date.now()}`, room: number % 40, amount: amounts[number % amounts.length]! },
      attributes: { room: number % 40 }
    })
  }).pipe(
    Effect.repeat(Schedule.spaced("500 millis")),
    Effect.timeoutOption(`${seconds} seconds`)
  )
  const session = yield* Effect.promise(async () => {
    const response = await fetch(`${origin}/hotel/api/session`, { headers: { authorization: `Bearer ${token}` } })
    return await response.json() as { readonly actor: string; readonly role: string }
  })
  yield* Console.log(`${session.actor} may ${session.role}; ${bookings} bookings were started`)
})

const registration = Effect.gen(function*() {
  const guest = { name: "Ada Lovelace", passport: "C01X00T47" }
  const { result, stored } = yield* register(7, guest)
  const isHidden = !JSON.stringify(stored).includes(guest.passport)
  yield* Console.log(`${result}; the database has the passport ${isHidden ? "encrypted" : "in plain text"}`)
})

await Effect.runPromise(registration.pipe(Effect.andThen(main.pipe(Effect.scoped, Effect.provide(App)))))
