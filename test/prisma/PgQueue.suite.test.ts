import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PgQueue from "../../src/prisma/PgQueue.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as QueueTest from "../../src/testing/QueueTest.ts"
import * as PgServer from "../utils/PgServer.ts"

const layer = Layer.unwrap(Effect.map(PgServer.database, ({ url }) =>
  PgQueue.layer({ queues: QueueTest.queues }).pipe(
    Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" }))
  )))

QueueTest.suite("PgQueue", { layer, timeout: "500 millis" })
