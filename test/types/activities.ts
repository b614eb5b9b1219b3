// Deliberate mistakes that tsc must find.
// @effect-diagnostics floatingEffect:off
/**
 * Which options of activities do not compile, and how they change the errors of a call: checked by `tsc`, never run.
 */
import { expectTypeOf } from "@effect/vitest"
import { Activity } from "duroxide-prisma"
import type { Orchestration } from "duroxide-prisma"
import * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"

class Declined extends Schema.TaggedError<Declined>()("Declined", { code: Schema.Int }) {}

const schemas = { payload: Schema.Int, success: Schema.String, error: Declined } as const
const Plain = Activity.make("Plain", schemas)

type Execute<E> = (payload: number) => Effect.Effect<string, E, Orchestration.Instance>

/** execute: fails with the error of the Schema, and with ActivityTimedOut where there is a timeout. */
export const execute = () => {
  expectTypeOf(Plain.execute).toEqualTypeOf<Execute<Declined>>()
  expectTypeOf(Plain.with({ tag: "gpu", sessionId: "s", retry: Schedule.recurs(2) }).execute)
    .toEqualTypeOf<Execute<Declined>>()

  const Hasty = Activity.make("Hasty", { ...schemas, timeout: "1 second" })
  const Patient = Activity.make("Patient", { ...schemas, totalTimeout: Duration.hours(1) })
  expectTypeOf(Hasty.execute).toEqualTypeOf<Execute<Declined | Activity.ActivityTimedOut>>()
  expectTypeOf(Patient.execute).toEqualTypeOf<Execute<Declined | Activity.ActivityTimedOut>>()
  expectTypeOf(Plain.with({ timeout: 1000 }).execute)
    .toEqualTypeOf<Execute<Declined | Activity.ActivityTimedOut>>()
  // A timeout stays when other options are changed.
  expectTypeOf(Hasty.with({ tag: "gpu" }).execute).toEqualTypeOf<Execute<Declined | Activity.ActivityTimedOut>>()
  // Options of the wide type may have a timeout.
  const wide: Activity.Options<Declined> = {}
  expectTypeOf(Plain.with(wide).execute).toEqualTypeOf<Execute<Declined | Activity.ActivityTimedOut>>()
}

/** retry: while sees typed failures, deaths and timeouts, and the Schedule must take them. */
export const retry = () => {
  // @ts-expect-error a retry without schedule and times would never end
  Plain.with({ retry: {} })
  // @ts-expect-error the same, with a condition
  Plain.with({ retry: { while: () => true } })
  Plain.with({
    retry: {
      times: 2,
      while: (outcome) => {
        expectTypeOf(outcome).toEqualTypeOf<Declined | Activity.ActivityDied | Activity.ActivityTimedOut>()
        return outcome._tag !== "ActivityDied"
      }
    }
  })
  Activity.make("Inferred", {
    ...schemas,
    retry: {
      times: 1,
      until: (outcome) => {
        expectTypeOf(outcome).toEqualTypeOf<Declined | Activity.ActivityDied | Activity.ActivityTimedOut>()
        return true
      }
    }
  })
  // @ts-expect-error this Schedule takes numbers
  Plain.with({ retry: Schedule.recurs(1) as Schedule.Schedule<number, number> })
  // @ts-expect-error a Schedule with services cannot be replayed
  Plain.with({ retry: Schedule.recurs(1) as Schedule.Schedule<number, unknown, never, "Service"> })
}

/** make: takes no session, which belongs to a call; execute takes no options, which a loop would fill. */
export const make = () => {
  // @ts-expect-error a session is not an option of a definition
  Activity.make("Bound", { sessionId: "s" })
  // @ts-expect-error options go through `with`
  Plain.execute(1, { tag: "gpu" })
  expectTypeOf([1, 2].map(Plain.execute)).toEqualTypeOf<
    Array<Effect.Effect<string, Declined, Orchestration.Instance>>
  >()
}
