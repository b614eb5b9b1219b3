/**
 * The row of a process in the store: written when it starts, again when it begins or ceases to listen, and removed when
 * it closes. A process that listens writes nothing in between: its connection shows that it lives.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Schedule from "effect/Schedule"
import { randomUUID } from "node:crypto"
import { hostname } from "node:os"
import { ours } from "../../model/shared/logging.ts"
import * as tracing from "../../model/shared/tracing.ts"
import type { Hints } from "../../waking/hints.ts"
import type { Notifier } from "../../waking/Notifier.ts"
import type { Provider } from "../Provider.ts"
import type { ProviderDriver } from "../ProviderDriver.ts"

export const make = (
  driver: Pick<ProviderDriver["Service"], "registerProcess" | "removeProcess">,
  hints: Pick<Hints, "isConnected" | "subscribe">,
  notifier: Notifier["Service"] | undefined
): Pick<Provider["Service"], "announceProcess"> => ({
  announceProcess: Effect.fnUntraced(function*(duties, slotsInUse) {
    const id = randomUUID()
    const report = { ...duties, id, host: hostname(), pid: process.pid }
    const changed = Latch.makeUnsafe()
    const change = () => void changed.openUnsafe()
    hints.subscribe({ connected: change, disconnected: change })
    /** Whether the connection has shown it once. From then on it does as long as it is connected. */
    let isShown = false
    let isWritten = false
    const isListening = () => isShown && hints.isConnected()

    const show = notifier?.showAlive === undefined ? undefined : Effect.andThen(
      notifier.showAlive(id, slotsInUse),
      Effect.sync(() => {
        isShown = true
        change()
      })
    )
    const listening: Effect.Effect<void> = Effect.suspend(() => {
      if (isListening()) return Effect.void
      changed.closeUnsafe()
      return Effect.andThen(changed.await, listening)
    })
    /** Waits for the connection that shows it, but not for long. */
    const settle = (duration: Duration.Duration) =>
      show === undefined ? Effect.void : Effect.raceFirst(listening, Effect.sleep(duration))

    const write = Effect.suspend(() => {
      isWritten = true
      return driver.registerProcess({ ...report, isListening: isListening(), slotsInUse })
    }).pipe(
      Effect.tapError((error) =>
        Effect.logDebug("Provider: the process is not registered yet").pipe(ours({ error: error.message }))
      ),
      Effect.retry(Schedule.spaced(betweenTries)),
      Effect.orDie
    )
    const loop = Effect.gen(function*() {
      yield* settle(firstConnection)
      while (true) {
        changed.closeUnsafe()
        const aliveForMs = yield* write
        const hasChanged = Effect.as(changed.await, true)
        const pause = aliveForMs === null
          ? hasChanged
          : Effect.raceFirst(hasChanged, Effect.as(Effect.sleep(aliveForMs / 3), false))
        if (yield* pause) yield* settle(shortLoss)
      }
    })

    const remove: Effect.Effect<unknown> = Effect.suspend(() => isWritten ? driver.removeProcess(id) : Effect.void)
      .pipe(
        Effect.timeoutOption(farewell),
        Effect.catch((error) =>
          Effect.logDebug("Provider: the process is not removed").pipe(ours({ error: error.message }))
        ),
        // Whatever span the end of the process has.
        Effect.updateContext(tracing.withoutSpan)
      )
    yield* Effect.addFinalizer(() => remove)
    if (show !== undefined) yield* Effect.forkScoped(show)
    yield* Effect.forkScoped(loop)
  })
})

// internal

const betweenTries = Duration.seconds(5)

/** For the first connection of the notifier: then one statement is enough. */
const firstConnection = Duration.seconds(1)

/** A connection that is back sooner changes nothing for others. */
const shortLoss = Duration.seconds(5)

/** A silent database delays the end of a process by this; others see by its lock that it has ended. */
const farewell = Duration.millis(500)
