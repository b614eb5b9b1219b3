/** Bookings of a hotel: rooms are reserved and cleaned, cards charged, large amounts approved by a person. */
import { Activity, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Effect, Layer, Random, Schedule, Schema } from "effect"

export const Approved = Signal.make("Approved", {
  payload: { by: Schema.String, limit: Schema.Int, note: Schema.optionalKey(Schema.String) }
})

export const Booking = Orchestration.make("Booking", {
  payload: { guest: Schema.String, room: Schema.Int, amount: Schema.Int },
  success: Schema.String,
  error: Schema.String,
  instanceId: ({ guest, room }) => `${guest} in ${room}`
})

const Clean = Orchestration.make("Clean", { payload: { room: Schema.Int } })
const Reserve = Activity.make("Reserve", { payload: { room: Schema.Int }, success: Schema.String })
const Charge = Activity.make("Charge", {
  payload: { amount: Schema.Int },
  success: Schema.String,
  error: Schema.String
})

/** Above this, a person approves. */
const limit = 500

const BookingLive = Booking.toLayer(Effect.fn(function*({ amount, room }) {
  yield* Orchestration.setCustomStatus("reserving")
  yield* Reserve.execute({ room })
  if (amount > limit) {
    yield* Orchestration.setCustomStatus("waits for approval")
    yield* Approved.wait
  }
  yield* Orchestration.setCustomStatus("charging")
  const receipt = yield* Charge.execute({ amount }).pipe(Effect.retry(Schedule.recurs(2)))
  yield* Orchestration.setCustomStatus(null)
  yield* Clean.execute({ room })
  return receipt
}))

const someTime = (seconds: number) =>
  Effect.flatMap(Random.nextBetween(seconds / 4, seconds), (some) => Effect.sleep(some * 1000))

export const RuntimeLive = Runtime.layer({ orchestrations: [Booking, Clean], activities: [Reserve, Charge] }).pipe(
  Layer.provide([
    BookingLive,
    Clean.toLayer(() => Effect.sleep("10 seconds")),
    Reserve.toLayer(({ room }) => Effect.as(someTime(1), `room ${room}`)),
    Charge.toLayer(({ amount }) =>
      Effect.andThen(
        someTime(0.5),
        amount % 100 === 13 ? Effect.fail("card declined") : Effect.succeed(`paid ${amount}`)
      )
    )
  ])
)
