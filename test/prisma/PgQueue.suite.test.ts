import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Database } from "../../src/prisma/Database.ts"
import * as notifying from "../../src/prisma/internal/notifying.ts"
import * as PgQueue from "../../src/prisma/PgQueue.ts"
import * as QueueTest from "../../src/testing/QueueTest.ts"
import { Topics } from "../../src/waking/Topics.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Stores from "../utils/stores.ts"

const store = Stores.make(PgServer.database)

const layer = Layer.unwrap(Effect.map(store, ({ database, test }) =>
  PgQueue.layer({ queues: QueueTest.queues }).pipe(
    Layer.provide(Layer.effect(Topics, notifying.makeTopics({ url: test.url }))),
    Layer.provide(Layer.succeed(Database, database))
  )))

QueueTest.suite("PgQueue", { layer, timeout: "500 millis" })
