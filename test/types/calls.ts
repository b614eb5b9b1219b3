// Deliberate mistakes that tsc must find.
// @effect-diagnostics missingEffectContext:off missingEffectError:off
/**
 * What does not compile, and what is inferred: checked by `tsc`, never run.
 */
import { expectTypeOf } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Signal } from "duroxide-prisma"
import type { ErrorDetails, ProviderError } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as SecureRandom from "effect/crypto/SecureRandom"
import * as Effect from "effect/Effect"
import type * as Layer from "effect/Layer"
import type * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"

class Declined extends Schema.TaggedError<Declined>()("Declined", { code: Schema.Int }) {}
class Payments extends Context.Service<Payments, { readonly charge: (cents: number) => Effect.Effect<string> }>()(
  "test/Payments"
) {}

const Charge = Activity.make("Charge", { payload: Schema.Int, success: Schema.String, error: Declined })
const Fulfil = Orchestration.make("Fulfil", {
  payload: Schema.Struct({ cents: Schema.Int }),
  success: Schema.String,
  error: Declined
})
const Silent = Orchestration.make("Silent")
const Derived = Orchestration.make("Derived", {
  payload: { id: Schema.Int },
  instanceId: (order) => `order-${order.id}`
})
const Single = Orchestration.make("Single", { instanceId: () => "the only one" })
const Approved = Signal.make("Approved", { payload: Schema.Boolean })
const Ping = Signal.make("Ping")
const Orders = Signal.make("Orders", { payload: Schema.Int })
const Nudges = Signal.make("Nudges")
const Tick = Activity.make("Tick")
const Total = KeyValue.make("total", Schema.Int)

// -- payloads inside a program ---------------------------------------------------------------------

// @ts-expect-error the payload of Charge is a number
void Charge.execute("12")
// @ts-expect-error a payload is missing
void Charge.execute()
// @ts-expect-error cents is a number
void Fulfil.execute({ cents: "12" })
// @ts-expect-error cents is missing
void Fulfil.executeWithId({ instanceId: "child", payload: {} })
// @ts-expect-error cents is missing
void Fulfil.startDetached({ instanceId: "other", payload: {} })
// @ts-expect-error a payload is missing
void Fulfil.executeWithId({ instanceId: "child" })
// @ts-expect-error a payload is missing
void Fulfil.startDetached({ instanceId: "other" })
// @ts-expect-error an instance has an id
void Fulfil.startDetached({ payload: { cents: 1 } })
// @ts-expect-error a payload is missing
void Fulfil.continueAsNew()
// @ts-expect-error cents is a number
void Fulfil.continueAsNew({ cents: null })
// @ts-expect-error there is no such choice of version
void Fulfil.continueAsNew({ cents: 1 }, { version: "2.0.0" })
// @ts-expect-error the value is a number
void Total.set("1")

expectTypeOf(Orchestration.changed("fraud"))
  .toEqualTypeOf<Effect.Effect<boolean, never, Orchestration.Instance>>()
expectTypeOf(Orchestration.historySize).toEqualTypeOf<Effect.Effect<number, never, Orchestration.Instance>>()
// @ts-expect-error a change has an id
void Orchestration.changed()
// @ts-expect-error its id is a text
void Orchestration.changed(1)

expectTypeOf(Charge.execute(12)).toEqualTypeOf<Effect.Effect<string, Declined, Orchestration.Instance>>()
expectTypeOf(Fulfil.execute({ cents: 1 })).toEqualTypeOf<Effect.Effect<string, Declined, Orchestration.Instance>>()
expectTypeOf(Fulfil.continueAsNew({ cents: 1 })).toEqualTypeOf<Effect.Effect<never, never, Orchestration.Instance>>()
expectTypeOf(Silent.continueAsNew()).toEqualTypeOf<Effect.Effect<never, never, Orchestration.Instance>>()
expectTypeOf(Silent.startDetached({ instanceId: "i" }))
  .toEqualTypeOf<Effect.Effect<void, never, Orchestration.Instance>>()
expectTypeOf(Silent.executeWithId({ instanceId: "i" }))
  .toEqualTypeOf<Effect.Effect<void, never, Orchestration.Instance>>()
expectTypeOf(Tick.execute()).toEqualTypeOf<Effect.Effect<void, never, Orchestration.Instance>>()
expectTypeOf(Silent.execute()).toEqualTypeOf<Effect.Effect<void, never, Orchestration.Instance>>()
expectTypeOf(Approved.wait).toEqualTypeOf<Effect.Effect<boolean, never, Orchestration.Instance>>()
expectTypeOf(Ping.wait).toEqualTypeOf<Effect.Effect<void, never, Orchestration.Instance>>()
expectTypeOf(Orders.wait).toEqualTypeOf<Effect.Effect<number, never, Orchestration.Instance>>()
expectTypeOf(Total.get).toEqualTypeOf<Effect.Effect<Option.Option<number>, never, Orchestration.Instance>>()
expectTypeOf(KeyValue.clearAll).toEqualTypeOf<Effect.Effect<void, never, Orchestration.Instance>>()
expectTypeOf(Orchestration.uuid).toEqualTypeOf<Effect.Effect<string, never, Orchestration.Instance>>()

// What the runtime needs is hidden from programs: their context only describes the instance.
expectTypeOf<keyof Orchestration.Instance["Service"]>().toEqualTypeOf<
  "instanceId" | "executionId" | "orchestrationName" | "orchestrationVersion" | "isReplaying"
>()

// -- programs and handlers -------------------------------------------------------------------------

// @ts-expect-error a program has no services of the application: they belong in activities
void Fulfil.toLayer(({ cents }) => Effect.flatMap(Payments, ({ charge }) => charge(cents)))
// @ts-expect-error random bytes of the platform are not the same on a replay
void Fulfil.toLayer(() => Effect.flatMap(SecureRandom.SecureRandom, ({ uuidV4 }) => uuidV4))
// @ts-expect-error the program returns a number, but its Schema is a string
void Fulfil.toLayer(({ cents }) => Effect.succeed(cents))
// @ts-expect-error it fails with an error that its Schema does not have
void Fulfil.toLayer(() => Effect.fail("declined"))
// @ts-expect-error a child fails with Declined, which Silent may not
void Silent.toLayer(() => Effect.asVoid(Fulfil.execute({ cents: 1 })))
// @ts-expect-error the handler fails with an error that its Schema does not have
void Charge.toLayer(() => Effect.fail("declined"))

type Live<R> = Layer.Layer<Activity.Handler<"Charge">, never, R>
// A handler may have services; who provides the layer provides them.
expectTypeOf(Charge.toLayer((cents) => Effect.flatMap(Payments, ({ charge }) => charge(cents))))
  .toEqualTypeOf<Live<Payments>>()
// Handlers cannot use what only orchestrations have.
// @ts-expect-error a handler waits for no signal
void Charge.toLayer(() => Effect.as(Approved.wait, "approved"))
// @ts-expect-error a handler calls no activity
void Charge.toLayer((cents) => Charge.execute(cents))
// @ts-expect-error a handler keeps no values
void Charge.toLayer((cents) => Effect.as(Total.set(cents), "kept"))

// A sleep of a handler is an ordinary one.
void Charge.toLayer(() => Effect.as(Effect.sleep("1 second"), "rested"))

// The compiler's message for such mistakes: the second member of the expected type is a text that no program matches.
type Wanted<ToLayer extends (of: never) => unknown> = Parameters<ToLayer>[0]
expectTypeOf<Wanted<typeof Fulfil.toLayer<Payments>>>().toExtend<
  `an orchestration has no services: use test/Payments in an activity`
>()
expectTypeOf<Wanted<typeof Fulfil.toLayer<Payments | Orchestration.Instance | SecureRandom.SecureRandom>>>().toExtend<
  `an orchestration has no services: use ${string} in an activity`
>()
expectTypeOf<Wanted<typeof Fulfil.toLayer<Scope.Scope>>>().toExtend<
  "an orchestration has no scope of its own: close this one with Effect.scoped"
>()
expectTypeOf<Wanted<typeof Charge.toLayer<Orchestration.Instance | Payments>>>().toExtend<
  "activities, children, signals and values are for orchestrations: an activity uses Client instead"
>()

// -- fields instead of a Schema --------------------------------------------------------------------

const Fielded = Activity.make("Fielded", {
  payload: { cents: Schema.Int, note: Schema.optionalKey(Schema.String) },
  success: { receipt: Schema.String },
  error: { code: Schema.Int },
  retry: { times: 1, while: (outcome) => "code" in outcome && outcome.code > 1 }
})
expectTypeOf(Fielded.execute({ cents: 1 })).toEqualTypeOf<
  Effect.Effect<{ readonly receipt: string }, { readonly code: number }, Orchestration.Instance>
>()
// @ts-expect-error cents is missing
void Fielded.execute({ note: "urgent" })
void Fielded.toLayer(({ cents, note }) => Effect.succeed({ receipt: `${cents} ${note ?? ""}` }))
const FieldedOrder = Orchestration.make("FieldedOrder", {
  payload: { cents: Schema.Int },
  success: { sum: Schema.Int }
})
void FieldedOrder.toLayer(({ cents }) => Effect.succeed({ sum: cents }))
expectTypeOf(Signal.make("S", { payload: { ok: Schema.Boolean } }).wait).toEqualTypeOf<
  Effect.Effect<{ readonly ok: boolean }, never, Orchestration.Instance>
>()
expectTypeOf(KeyValue.make("k", { ok: Schema.Boolean }).get).toEqualTypeOf<
  Effect.Effect<Option.Option<{ readonly ok: boolean }>, never, Orchestration.Instance>
>()
// @ts-expect-error a field is a Schema
void Activity.make("Wrong", { payload: { cents: "number" } })

// -- the client ------------------------------------------------------------------------------------

declare const client: Client.Client["Service"]

// @ts-expect-error cents is a number
void client.start(Fulfil, { instanceId: "i", payload: { cents: "12" } })
// @ts-expect-error a payload is missing
void client.start(Fulfil, { instanceId: "i" })
// @ts-expect-error an instance has an id
void client.start(Fulfil, { payload: { cents: 1 } })
// @ts-expect-error an instance has an id
void client.execute(Silent, {})
// @ts-expect-error a payload is missing
void client.execute(Fulfil, { instanceId: "i" })
// @ts-expect-error there is no such choice of version
void client.start(Fulfil, { instanceId: "i", payload: { cents: 1 }, version: "2.0.0" })
// @ts-expect-error the payload of Approved is a boolean
void client.send(Approved, "i", "yes")
// @ts-expect-error a payload is missing
void client.send(Approved, "i")
// @ts-expect-error a payload is missing
void client.send(Orders, "i")
// @ts-expect-error the payload of Orders is a number
void client.send(Orders, "i", "1")
// @ts-expect-error an activity is not an orchestration
void client.start(Charge, { instanceId: "i", payload: 1 })

// An id that the definition derives may be left out, or given.
void client.start(Derived, { payload: { id: 1 } })
void client.execute(Derived, { payload: { id: 1 }, instanceId: "another", timeout: "1 second" })
void client.start(Single, {})
void Derived.startDetached({ payload: { id: 1 } })
void Derived.executeWithId({ payload: { id: 1 } })
expectTypeOf(Derived.instanceId).toEqualTypeOf<(order: { readonly id: number }) => string>()
expectTypeOf(Fulfil.instanceId).toEqualTypeOf<undefined>()
// @ts-expect-error the id is derived from the payload, which is missing
void client.start(Derived, {})
// @ts-expect-error an id is a text
void Orchestration.make("Wrong", { payload: { id: Schema.Int }, instanceId: (order) => order.id })
// @ts-expect-error orders have no name
void Orchestration.make("Wrong", { payload: { id: Schema.Int }, instanceId: (order) => `${order.name}` })
expectTypeOf(
  Orchestration.make("Theirs", { payload: Schema.Int, instanceId: (n) => `n-${n}`, servedBy: "rust" }).instanceId
).toEqualTypeOf<(n: number) => string>()

// A program that is generic in its payload passes it on.
export const startAll = <P extends Schema.Codec<any, any>>(
  definition: Orchestration.Orchestration<string, P, Schema.Void, Schema.Never>,
  signal: Signal.Signal<P>,
  payload: P["Type"]
) => Effect.andThen(client.start(definition, { instanceId: "i", payload }), client.send(signal, "i", payload))

type Problem = Client.PayloadMismatch | ProviderError.ProviderError
type Send = Client.PayloadTooLarge | Problem
type Wait = Client.InstanceCancelled | Client.InstanceFailed | Client.WaitTimeout | Problem

expectTypeOf(client.start(Fulfil, { instanceId: "i", payload: { cents: 1 } }))
  .toEqualTypeOf<Effect.Effect<void, Client.InstanceAlreadyExists | Send>>()
expectTypeOf(client.wait(Fulfil, "i")).toEqualTypeOf<Effect.Effect<string, Declined | Wait>>()
expectTypeOf(client.wait(Silent, "i")).toEqualTypeOf<Effect.Effect<void, Wait>>()
expectTypeOf(client.execute(Fulfil, { instanceId: "i", payload: { cents: 1 } }))
  .toEqualTypeOf<Effect.Effect<string, Declined | Client.InstanceAlreadyExists | Send | Wait>>()
expectTypeOf(client.read(Total, "i")).toEqualTypeOf<Effect.Effect<Option.Option<number>, Problem>>()
expectTypeOf(client.waitForValue(Total, "i", { until: (total) => total > 1, timeout: "1 second" }))
  .toEqualTypeOf<Effect.Effect<number, Client.InstanceEnded | Client.WaitTimeout | Problem>>()
expectTypeOf(client.waitForStatus("i", { after: 1 })).toEqualTypeOf<
  Effect.Effect<Client.CustomStatus, Client.InstanceEnded | Client.WaitTimeout | ProviderError.ProviderError>
>()
expectTypeOf(client.send(Nudges, "i")).toEqualTypeOf<Effect.Effect<void, Send>>()
expectTypeOf(client.start(Silent, { instanceId: "i" }))
  .toEqualTypeOf<Effect.Effect<void, Client.InstanceAlreadyExists | Send>>()
expectTypeOf(client.send(Ping, "i")).toEqualTypeOf<Effect.Effect<void, Send>>()
expectTypeOf(client.send(Orders, "i", 1)).toEqualTypeOf<Effect.Effect<void, Send>>()
expectTypeOf(client.terminate("i", "why")).toEqualTypeOf<Effect.Effect<void, ProviderError.ProviderError>>()

expectTypeOf(client.status("i")).toEqualTypeOf<Effect.Effect<Client.Status, ProviderError.ProviderError>>()
type StatusOf<Tag extends Client.Status["_tag"]> = Extract<Client.Status, { readonly _tag: Tag }>
expectTypeOf<Client.Status["_tag"]>().toEqualTypeOf<"NotFound" | "Running" | "Completed" | "Failed" | "Cancelled">()
expectTypeOf<StatusOf<"Running">["executionId"]>().toEqualTypeOf<number>()
expectTypeOf<StatusOf<"Completed">["output"]>().toEqualTypeOf<string>()
expectTypeOf<StatusOf<"Failed">["details"]>().toEqualTypeOf<ErrorDetails.ErrorDetails>()
expectTypeOf<StatusOf<"Cancelled">["reason"]>().toEqualTypeOf<string>()
expectTypeOf<StatusOf<"Completed">["customStatus"]>().toEqualTypeOf<Option.Option<string>>()
