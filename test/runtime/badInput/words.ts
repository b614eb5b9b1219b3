/**
 * What the cases expect, as words.
 */
import { assert } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Admin, Provider } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as App from "./app.ts"

export type Services = Admin.Admin | Provider.Provider

export type Test = (client: Client.Client["Service"], id: string) => Effect.Effect<void, unknown, Services>

export const failure = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.flip(effect)

/** The call is refused with an error of this kind and message. */
export const refused = Effect.fnUntraced(
  function*(call: Effect.Effect<unknown, unknown>, kind: string, ...said: Array<string>) {
    const error = (yield* failure(call)) as Error & {
      readonly _tag: string
      readonly reason?: { readonly _tag: string }
    }
    assert.strictEqual(error.reason?._tag ?? error._tag, kind)
    for (const text of said) assert.include(error.message, text)
  }
)

/** The instance fails without a typed error, with this message. */
export const fails = (wait: Effect.Effect<unknown, unknown>, ...said: Array<string>) =>
  refused(wait, "InstanceFailed", ...said)

/** The instance was cancelled for this reason. */
export const cancelled = Effect.fnUntraced(function*(wait: Effect.Effect<unknown, unknown>, reason: string) {
  const error = yield* failure(wait)
  assert.instanceOf(error, Client.InstanceCancelled)
  assert.strictEqual(error.reason, reason)
})

/** The program `deed` fails its instance with this message; the value itself is not shown. */
export const deedFails = (deed: App.Deed, ...said: Array<string>): Test => (client, instanceId) =>
  fails(client.execute(App.Does, { instanceId, payload: String(deed) }), ...said)

/** Waits until the instance waits, after its first turn. */
export const waiting = (instanceId: string) =>
  Effect.flatMap(
    Admin.Admin,
    (admin) => Effect.repeat(admin.readHistory(instanceId), { until: (events) => events.length > 1 })
  )

export const history = (instanceId: string) =>
  Effect.map(
    Effect.flatMap(Admin.Admin, (admin) => admin.readHistory(instanceId)),
    (events) => events.map(({ _tag }) => _tag)
  )

/** Waits until the runtime has dropped a message for the instance, which has ended. */
export const untilDropped = (client: Client.Client["Service"], instanceId: string) =>
  Effect.repeat(client.status(instanceId), { until: () => App.dropped.has(instanceId) })

/** Such definitions are a mistake in the code, and throw at once. */
export const isRefused = (problem: string, ...definitions: ReadonlyArray<() => unknown>): Test => () =>
  Effect.sync(() => {
    for (const define of definitions) assert.throws(define, RangeError, problem)
  })
