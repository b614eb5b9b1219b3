/**
 * What the cases expect, as words.
 */
import { assert } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Admin, Provider } from "duroxide-prisma/provider"
import type { Block } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
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
export const cancelled = Effect.fnUntraced(function*(wait: Effect.Effect<unknown, unknown>, reason: string | RegExp) {
  const error = yield* failure(wait)
  assert.instanceOf(error, Client.InstanceCancelled)
  if (typeof reason === "string") assert.strictEqual(error.reason, reason)
  else assert.match(error.reason, reason)
})

/** The program `deed` fails its instance with this message; the value itself is not shown. */
export const deedFails = (deed: App.Deed, ...said: Array<string>): Test => (client, instanceId) =>
  fails(client.execute(App.Does, { instanceId, payload: String(deed) }), ...said)

/** The instance is blocked with this problem: it has not ended. */
export const blocked = Effect.fnUntraced(function*(
  client: Client.Client["Service"],
  instanceId: string,
  reason: Block.BlockReason,
  ...said: Array<string>
) {
  const status = yield* Effect.repeat(client.status(instanceId), {
    until: (status) => status._tag !== "Running" || Option.isSome(status.block)
  })
  if (status._tag !== "Running") return assert.fail(`it is ${status._tag}`)
  const block = Option.getOrThrow(status.block)
  assert.strictEqual(block.reason, reason)
  assert.strictEqual(block.build, "this build")
  for (const text of said) assert.include(block.problem, text)
})

/** Lets blocked instances be tried at once, as the start of a process does. */
export const wakeBlocked = (...definitions: ReadonlyArray<{ readonly name: string }>) =>
  Effect.flatMap(
    Provider.Provider,
    (provider) => provider.wakeBlocked({ orchestrations: definitions.map(({ name }) => name), activities: [] })
  )

/** The program `deed` blocks its instance, until it is cancelled. */
export const deedBlocks = (deed: App.Deed, reason: Block.BlockReason, ...said: Array<string>): Test =>
  Effect.fnUntraced(function*(client, instanceId) {
    yield* client.start(App.Does, { instanceId, payload: String(deed) })
    yield* blocked(client, instanceId, reason, ...said)
    yield* client.terminate(instanceId, "enough")
    yield* wakeBlocked(App.Does)
    yield* cancelled(client.wait(App.Does, instanceId), "enough")
  })

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
