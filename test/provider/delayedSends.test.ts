/**
 * Messages with a delay, from a process whose clock differs from that of the store: when others see them, in virtual
 * time.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import { changed } from "../utils/clock.ts"
import * as LocalProcess from "../utils/localProcess.ts"
import { fetchInstance, hub, open, pass, storeOf, waiting } from "../utils/longPolling.ts"
import * as Starts from "../utils/starts.ts"

const base = 100_000_000

/** The clock of the test, later by so much. */
const ahead = (clock: Clock.Clock, byMs: number) => {
  const now = () => clock.currentTimeMillisUnsafe() + byMs
  return changed(clock, { currentTimeMillisUnsafe: now, currentTimeMillis: Effect.sync(now) })
}

describe("A message with a delay, sent by a process", () => {
  for (
    const [what, skewMs] of [["whose clock is right", 0], ["an hour fast", 3_600_000], [
      "an hour slow",
      -3_600_000
    ]] as const
  ) {
    it.effect(`${what}, wakes others on time`, () =>
      Effect.gen(function*() {
        const test = yield* Clock.Clock
        const right = ahead(test, base)
        const store = storeOf()
        // The store keeps its own time.
        const driver = LocalProcess.intercept(store.driver, (call) => Effect.provideService(call, Clock.Clock, right))
        const { connect } = hub()
        const worker = yield* open(driver, connect("worker")).pipe(Effect.provideService(Clock.Clock, right))
        // It does not know the store's clock, as it only sends.
        const sender = yield* open(driver, connect("sender")).pipe(
          Effect.provideService(Clock.Clock, ahead(test, base + skewMs))
        )
        const [fetch] = yield* waiting(1, fetchInstance(worker))
        yield* pass("1 minute")
        store.statements()
        const seconds = [20, 30]
        for (const delay of seconds) {
          yield* sender.enqueueForOrchestrator({
            message: Starts.message(`after ${delay}`),
            delay: Option.some(Duration.seconds(delay))
          })
        }
        yield* pass("1 second")
        assert.isAtMost(store.statements().filter((statement) => statement === "readNextDue").length, 2)
        yield* pass("18900 millis")
        assert.isUndefined(fetch!.pollUnsafe())
        yield* pass("300 millis")
        const first = yield* Fiber.join(fetch!)
        assert.strictEqual(first?.item.instanceId, "after 20")
        yield* worker.dropOrchestrationItem(first!.lockToken)
        const [next] = yield* waiting(1, fetchInstance(worker))
        yield* pass("10 seconds")
        assert.strictEqual((yield* Fiber.join(next!))?.item.instanceId, "after 30")
      }))
  }
})
