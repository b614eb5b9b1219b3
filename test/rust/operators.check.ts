import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as operators from "../runtime/operators.ts"
import * as Ours from "./ours.ts"
import * as Rust from "./Rust.ts"

/** What the binding calls the events of kept signals. */
const kinds: { readonly [tag: string]: string } = {
  ExternalSubscribedPersistent: "QueueSubscribed",
  ExternalEventPersistent: "QueueEventDelivered",
  ExternalSubscribedPersistentCancelled: "QueueSubscriptionCancelled"
}

describe("Histories of instances that operators have interrupted, retried, forked and redriven at random", () => {
  it.live(
    "are read by Duroxide, event by event",
    () =>
      Effect.gen(function*() {
        const shared = yield* Rust.open
        const histories = yield* Effect.provide(operators.run(4), Ours.store(shared))
        assert.isAbove(histories.size, 20)
        for (const [instanceId, events] of histories) {
          const read = yield* Rust.ask(shared, (client) => client.readExecutionHistory(instanceId, 1))
          assert.deepStrictEqual(
            read.map(({ eventId, kind }) => [eventId, kind]),
            events.map(({ _tag, eventId }) => [eventId, kinds[_tag] ?? _tag])
          )
        }
      })
  )
})
