/**
 * What tests require of answers.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Admin } from "../../../provider/Admin.ts"
import { ProviderError } from "../../../provider/ProviderError.ts"

/** The value of an option, or a failed assertion that names what is missing. */
export const some = <A>(option: Option.Option<A>, what: string): A => {
  assert(Option.isSome(option), `expected ${what}, found nothing`)
  return option.value
}

/** Requires that the call fails permanently, with a message that matches. */
export const fails = <A, R>(
  call: Effect.Effect<A, ProviderError, R>,
  message: RegExp = /./
): Effect.Effect<ProviderError, never, R> =>
  Effect.map(Effect.exit(call), (exit) => {
    assert(exit._tag === "Failure", "expected the call to fail")
    const reason = exit.cause.reasons[0]
    assert(reason?._tag === "Fail" && reason.error instanceof ProviderError, "expected a ProviderError")
    assert.isFalse(reason.error.isRetryable, `expected a permanent error, not ${reason.error.message}`)
    assert.match(reason.error.message, message)
    return reason.error
  })

/** Requires that the instances exist. */
export const expectInstances = (...instances: ReadonlyArray<string>) =>
  Effect.flatMap(Admin, (admin) =>
    Effect.forEach(instances, (instance) =>
      Effect.map(
        admin.getInstanceInfo(instance),
        ({ instanceId }) => assert.strictEqual(instanceId, instance)
      ), { discard: true }))

/** Requires that none of the instances exists. */
export const expectGone = (...instances: ReadonlyArray<string>) =>
  Effect.flatMap(
    Admin,
    (admin) =>
      Effect.forEach(instances, (instance) => fails(admin.getInstanceInfo(instance), /not found/), { discard: true })
  )

/** Requires that an option is empty. */
export const none = <A>(option: Option.Option<A>, name: (value: A) => string): void =>
  assert(Option.isNone(option), `expected nothing, found ${Option.isSome(option) ? name(option.value) : ""}`)
