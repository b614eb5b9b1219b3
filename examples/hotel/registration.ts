/**
 * Guests register with their passports. The database, its backups and the dashboard show neither names nor numbers: the
 * payloads are encrypted. Ids of instances are not, so they have none of both.
 */
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Admin, PayloadCodec } from "duroxide-prisma/provider"
import { Effect, Layer, Schema } from "effect"
import { randomBytes } from "node:crypto"

const Guest = Schema.Struct({ name: Schema.String, passport: Schema.String })

const Registration = Orchestration.make("Registration", { payload: Guest, success: Schema.String })
const Report = Activity.make("Report", { payload: Guest, success: Schema.String })

const RuntimeLive = Runtime.layer({ orchestrations: [Registration], activities: [Report] }).pipe(
  Layer.provide([
    Registration.toLayer((guest) => Report.execute(guest)),
    Report.toLayer(({ name }) => Effect.succeed(`${name} is registered`))
  ])
)

/** The keys of payloads. A real hotel reads them from its configuration: `PayloadCodec.environment`. */
const keys = PayloadCodec.parseKeys(`k1:${randomBytes(32).toString("base64")}`)

const App = RuntimeLive.pipe(
  Layer.provideMerge(Client.layer),
  Layer.provideMerge(PrismaProvider.layerDefault({ schema: "example_hotel" })),
  Layer.provide(PayloadCodec.layer([PayloadCodec.compression(), PayloadCodec.encryption(keys)]))
)

/** The result of a registration, and what the database has of it. */
export const register = (room: number, guest: typeof Guest.Type) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    const admin = yield* Admin.Admin
    const instanceId = `registration ${room} ${Date.now()}`
    const result = yield* client.execute(Registration, { instanceId, payload: guest })
    return { result, stored: yield* admin.readHistory(instanceId) }
  }).pipe(Effect.provide(App))
