/**
 * Codecs for tests, an orchestration that uses every kind of payload, and what a database holds as text.
 */
import { assert } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, ProgressStream, Request, Runtime, Signal } from "duroxide-prisma"
import { PayloadCodec } from "duroxide-prisma/provider"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { createHash } from "node:crypto"
import type * as PgServer from "../utils/PgServer.ts"

/** Stands in every payload of a test, and nowhere else. */
export const canary = "canary-7f3a"

const key = (id: string) => createHash("sha256").update(id).digest()

/** Encrypts with the first of these keys. */
export const encryption = (...ids: ReadonlyArray<string>) =>
  PayloadCodec.encryption({ keys: Object.fromEntries(ids.map((id) => [id, key(id)])), current: ids[0]! })

export const encrypted = (...ids: ReadonlyArray<string>) => PayloadCodec.layer([encryption(...ids)])

/** `DUROXIDE_PAYLOAD_KEYS` with these keys. */
export const keysText = (...ids: ReadonlyArray<string>) =>
  ids.map((id) => `${id}:${key(id).toString("base64")}`).join(",")

const Guest = Schema.Struct({ name: Schema.String })
export class Refused extends Schema.TaggedError<Refused>()("Refused", { reason: Schema.String }) {}

/** Answers, refuses, rejects or dies, as the end of the name says. */
export const Ask = Request.make("Ask", { payload: Guest, success: Schema.String, error: Refused })

const answering = Ask.serve(
  Effect.fnUntraced(function*({ name }) {
    if (name.endsWith("late")) return yield* new Refused({ reason: name })
    if (name.endsWith("dead")) return yield* Effect.die(new Error(name))
    return `room 7 for ${name}`
  }),
  {
    validate: ({ name }) => name.endsWith("early") ? Result.fail(new Refused({ reason: name })) : Result.succeed(name)
  }
)

const Charge = Activity.make("Charge", { payload: Guest, success: Schema.String })
const Refuse = Activity.make("Refuse", { payload: Guest, error: Refused })
const Die = Activity.make("Die", { payload: Guest })
const Nights = KeyValue.make("nights", Guest)
export const Steps = ProgressStream.make("steps", { chunk: Guest })
export const Note = Signal.make("Note", { payload: Guest })
export const Ring = Signal.make("Ring", { payload: Guest, unawaited: "lost" })
export const Breakfast = Orchestration.make("Breakfast", { payload: Guest, success: Schema.String, error: Refused })
/** Answers until it gets a note. */
export const Desk = Orchestration.make("Desk", { payload: Guest, success: Guest })
export const Stay = Orchestration.make("Stay", {
  payload: { guest: Guest, rounds: Schema.Int, ends: Schema.Literals(["well", "refused", "dead"]) },
  success: Schema.String,
  error: Refused
})

export const guest = { name: canary }

const failureOf = <A, E, R>(call: Effect.Effect<A, E, R>) =>
  Effect.flip(Effect.flatMap(call, () => Effect.die("it did not fail")))

export const BreakfastLive = Breakfast.toLayer(Effect.fn(function*({ name }) {
  if (name.endsWith("late")) return yield* new Refused({ reason: name })
  return `eggs for ${name}`
}))

export const DeskLive = Desk.toLayer(Effect.fn(function*(guest) {
  yield* Nights.set(guest)
  yield* answering
  return yield* Note.wait
}))

/** Two executions, with every kind of payload in each. */
export const StayLive = Stay.toLayer(Effect.fn(function*({ ends, guest, rounds }) {
  yield* Orchestration.setCustomStatus(`in house: ${guest.name}`)
  yield* Nights.set(guest)
  yield* Steps.append(guest)
  const charged = yield* Charge.execute(guest)
  const refused = yield* failureOf(Refuse.execute(guest))
  const died = yield* Effect.exit(Die.execute(guest))
  const eggs = yield* Breakfast.execute(guest)
  const late = yield* failureOf(Breakfast.execute({ name: `${guest.name} late` }))
  const rung = yield* Effect.raceFirst(Ring.wait, Effect.as(Effect.sleep("1 minute"), undefined))
  const note = yield* Note.wait
  if (rounds > 1) return yield* Stay.continueAsNew({ guest, rounds: rounds - 1, ends })
  if (ends === "refused") return yield* new Refused({ reason: guest.name })
  if (ends === "dead") return yield* Effect.die(new Error(guest.name))
  return [
    charged,
    refused.reason,
    Exit.isFailure(died) ? String(Cause.squash(died.cause)).includes(guest.name) : died,
    eggs,
    late.reason,
    rung?.name,
    note.name
  ].join("; ")
}))

/** What serves them. */
export const hotel = Runtime.layer({ orchestrations: [Stay, Breakfast, Desk], activities: [Charge, Refuse, Die] }).pipe(
  Layer.provide([
    Charge.toLayer(Effect.fn(function*(guest) {
      const before = yield* Steps.resume
      yield* Steps.append(guest)
      assert.deepStrictEqual(before, [])
      assert.deepStrictEqual(yield* Steps.resume, [guest])
      return `charged ${guest.name}`
    })),
    Refuse.toLayer(({ name }) => new Refused({ reason: name })),
    Die.toLayer(({ name }) => Effect.die(new Error(name))),
    BreakfastLive,
    DeskLive,
    StayLive
  ])
)

/** What `Stay` answers. */
export const receipt = [
  `charged ${canary}`,
  canary,
  true,
  `eggs for ${canary}`,
  `${canary} late`,
  canary,
  canary
].join("; ")

/** Notes for two executions wait from the start; the program is rung when it waits. */
export const begin = Effect.fnUntraced(function*(instanceId: string, ends: "well" | "refused" | "dead" = "well") {
  const client = yield* Client.Client
  yield* client.start(Stay, { instanceId, payload: { guest, rounds: 2, ends } })
  yield* client.send(Note, instanceId, guest)
  yield* client.send(Note, instanceId, guest)
})

export interface Found {
  readonly table: string
  readonly row: string
}

/** Rows of all tables of a database, or those that contain a text. */
export const rows = Effect.fnUntraced(function*({ schema, sql }: PgServer.TestDatabase, containing = "") {
  const tables = yield* sql<{ readonly table: string }>(
    `SELECT relname AS table FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r' ORDER BY 1`,
    [schema]
  )
  const found: Array<Found> = []
  for (const { table } of tables) {
    const rows = yield* sql<{ readonly row: string }>(
      `SELECT t::text AS row FROM ${table} AS t WHERE strpos(t::text, $1) > 0 OR $1 = ''`,
      [containing]
    )
    for (const { row } of rows) found.push({ table, row })
  }
  return found
})
