import { assert, describe, it } from "@effect/vitest"
import type * as Event from "../../src/model/Event.ts"
import { Ledger } from "../../src/model/shared/ledger.ts"

const envelope = { sourceEventId: null, instanceId: "i", executionId: 1, timestampMs: 0, duroxideVersion: "1000.0.0" }

const wait = (eventId: number, name = "Go") => ({ ...envelope, eventId, _tag: "ExternalSubscribed", name }) as const
const signal = (eventId: number, name = "Go") =>
  ({ ...envelope, eventId, _tag: "ExternalEvent", name, data: "null" }) as const
const dequeue = (eventId: number) =>
  ({ ...envelope, eventId, _tag: "ExternalSubscribedPersistent", name: "Mail" }) as const
const message = (eventId: number) =>
  ({ ...envelope, eventId, _tag: "ExternalEventPersistent", name: "Mail", data: "null" }) as const
const giveUp = (eventId: number, sourceEventId: number): Event.Event => ({
  ...envelope,
  eventId,
  sourceEventId,
  _tag: "ExternalSubscribedCancelled",
  reason: "dropped_future"
})

/** `wait<arrival` for each delivery. */
const deliveries = (ledger: Ledger, events: ReadonlyArray<Event.Event>) =>
  events.flatMap((event) => {
    const delivery = ledger.add(event)
    return delivery === undefined ? [] : `${delivery.requestId}<${delivery.answer.eventId}`
  })

describe("Ledger", () => {
  it("a signal goes to the oldest open wait of its name, and is lost without one", () => {
    const ledger = new Ledger()
    const events = [signal(1), wait(2), wait(3, "Other"), wait(4), signal(5), signal(6), signal(7)]
    assert.deepStrictEqual(deliveries(ledger, events), ["2<5", "4<6"])
    assert.deepStrictEqual([2, 3, 4].filter((id) => ledger.isOpen(id)), [3])
  })

  it("a signal goes to the oldest open wait of its name, or stays for the next one", () => {
    const ledger = new Ledger()
    const events = [message(1), message(2), dequeue(3), dequeue(4), dequeue(5), message(6), message(7)]
    assert.deepStrictEqual(deliveries(ledger, events), ["3<1", "4<2", "5<6"])
    assert.deepStrictEqual(ledger.unread().map(({ eventId }) => eventId), [7])
  })

  it("a dropped wait receives nothing: the next one moves up", () => {
    const ledger = new Ledger()
    deliveries(ledger, [wait(1), wait(2)])
    ledger.giveUpWait(1)
    assert.deepStrictEqual(deliveries(ledger, [signal(3)]), ["2<3"])
  })

  it("in a history that is not replayed, a wait with a cancel event has received nothing", () => {
    const ledger = Ledger.of([wait(1), wait(2), signal(3), giveUp(4, 1)])
    assert.deepStrictEqual([1, 2].filter((id) => ledger.isOpen(id)), [])
    const lasting = Ledger.of([wait(1), wait(2), giveUp(3, 1)])
    assert.deepStrictEqual([1, 2].filter((id) => lasting.isOpen(id)), [2])
  })
})
