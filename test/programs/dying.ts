// A process that is killed just after it has stored something, before it can announce it. Run by
// `node dying.js <database URL> start | served | signal | turn`.
//
// `start` starts `Rounds`, `served` too, in a process that serves it and dies with the answer, while its hints are
// 100 milliseconds late; `signal` signals the instance `r` of `Report`. `turn` runs `Rounds`, again and again as
// others may take its turns, until it has stored that an execution continues as new.
import { Client, RuntimeConfig } from "duroxide-prisma"
import { Database, PgNotifier, PrismaDriver } from "duroxide-prisma/prisma"
import { FromDriver, Notifier, ProviderDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Next } from "./reports.js"
import { Rounds, RoundsLive } from "./rounds.js"

const [url, moment] = process.argv.slice(2) as [string, string]

const die = Effect.andThen(Effect.sync(() => process.kill(process.pid, "SIGKILL")), Effect.never)

const notifier = Effect.map(PgNotifier.make({ url }), (notifier) => ({
  ...notifier,
  announce: (hints: ReadonlyArray<Notifier.Hint>) =>
    moment === "served"
      ? Effect.delay(notifier.announce(hints), "100 millis")
      : moment !== "turn" && hints.some(({ _tag }) => _tag === "Work")
      ? die
      : notifier.announce(hints)
}))

const driver = Effect.map(PrismaDriver.make(), (driver) => ({
  ...driver,
  startOrchestrations: (starts: Parameters<typeof driver.startOrchestrations>[0]) =>
    Effect.tap(driver.startOrchestrations(starts), () => moment === "served" ? die : Effect.void),
  advanceOrchestrations: (turns: ReadonlyArray<ProviderDriver.OptimisticTurn>) =>
    Effect.tap(
      driver.advanceOrchestrations!(turns),
      () => moment === "turn" && JSON.stringify(turns).includes("ContinueAsNew") ? die : Effect.void
    )
}))

const store = FromDriver.layer().pipe(
  Layer.provide(Layer.effect(ProviderDriver.ProviderDriver, driver)),
  Layer.provide(Layer.effect(Notifier.Notifier, notifier)),
  Layer.provide(Database.layer({ url }))
)

let rounds = 0

const main = Effect.gen(function*() {
  const client = yield* Client.Client
  if (moment === "signal") yield* client.send(Next, "r")
  else if (moment !== "turn") yield* client.start(Rounds, { instanceId: "r", payload: 2 })
  else {return yield* Effect.forever(Effect.suspend(() =>
      client.execute(Rounds, { instanceId: `r${rounds++}`, payload: 2 })
    ))}
  return yield* Effect.never
}).pipe(
  Effect.provide(
    (moment === "turn" || moment === "served" ? Layer.provideMerge(Client.layer, RoundsLive) : Client.layer).pipe(
      Layer.provide(store),
      Layer.provide(RuntimeConfig.layer({ workerLockTimeout: "2 seconds", orchestrationLockTimeout: "2 seconds" }))
    )
  )
)

Effect.runFork(main)
