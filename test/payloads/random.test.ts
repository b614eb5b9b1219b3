/**
 * Random programs in virtual time: with codecs they end as without one, and their decoded histories are the same.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { PayloadCodec } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { reveal } from "../../src/provider/shared/revealing.ts"
import { Dice } from "../replay/randomPrograms.ts"
import { times } from "../utils/times.ts"
import { canary, encryption } from "./utils.ts"

const Step = Schema.Literals([
  "call",
  "fail",
  "die",
  "child",
  "failing child",
  "set",
  "get",
  "status",
  "sleep",
  "wait",
  "ring",
  "race",
  "continue",
  "refuse"
])
type Step = typeof Step.Type
const Script = Schema.Struct({
  steps: Schema.Array(Step),
  text: Schema.String,
  depth: Schema.Int,
  seen: Schema.Array(Schema.String)
})

const Call = Activity.make("Call", { payload: Schema.String, success: Schema.String, error: Schema.String })
const Value = KeyValue.make("value", Schema.String)
const Note = Signal.make("Note", { payload: Schema.String })
const Ring = Signal.make("Ring", { payload: Schema.String, unawaited: "lost" })
const Play = Orchestration.make("Play", {
  payload: Script,
  success: Schema.Array(Schema.String),
  error: Schema.String
})

const outcome = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(
    Effect.exit(effect),
    (exit) =>
      Exit.isSuccess(exit)
        ? `ok ${JSON.stringify(exit.value)}`
        : `no ${String(exit.cause.reasons[0]?._tag)} ${JSON.stringify(exit.cause.reasons[0])}`
  )

const play: (script: typeof Script.Type) => Effect.Effect<ReadonlyArray<string>, string, Orchestration.Instance> =
  Effect.fn(function*({ depth, seen, steps, text }) {
    const all = [...seen]
    for (const [index, step] of steps.entries()) {
      const said = `${text} ${step} ${index}`
      const rest = { depth: depth - 1, text: said, steps: steps.slice(0, 2), seen: [] }
      switch (step) {
        case "call":
        case "fail":
        case "die":
          all.push(yield* outcome(Call.execute(said)))
          break
        case "child":
          if (depth > 0) all.push(yield* outcome(Play.execute(rest)))
          break
        case "failing child":
          if (depth > 0) all.push(yield* outcome(Play.execute({ ...rest, steps: ["refuse"] })))
          break
        case "set":
          yield* Value.set(said)
          break
        case "get":
          all.push(JSON.stringify(yield* Value.get))
          break
        case "status":
          yield* Orchestration.setCustomStatus(said)
          break
        case "sleep":
          yield* Effect.sleep("1 minute")
          break
        case "wait":
          all.push(String(yield* Effect.timeoutOption(Note.wait, "1 hour")))
          break
        case "ring":
          all.push(String(yield* Effect.timeoutOption(Ring.wait, "1 hour")))
          break
        case "race":
          all.push(
            yield* Effect.raceFirst(Effect.as(Effect.sleep("1 minute"), "slept"), Effect.orDie(Call.execute(said)))
          )
          break
        case "continue":
          if (depth > 0) {
            return yield* Play.continueAsNew({ steps: steps.slice(index + 1), text, depth: depth - 1, seen: all })
          }
          break
        case "refuse":
          return yield* Effect.fail(`${canary} refused ${said}`)
      }
    }
    return all
  })

const runtime = Runtime.layer({ orchestrations: [Play], activities: [Call] }).pipe(Layer.provide([
  Play.toLayer(play),
  Call.toLayer((text) =>
    text.includes("fail")
      ? Effect.fail(`failed ${text}`)
      : text.includes("die")
      ? Effect.die(`died ${text}`)
      : Effect.succeed(`did ${text}`)
  ),
  Logger.layer([])
]))

/** How the program ends, and all that is stored of it, decoded. */
const run = (script: typeof Script.Type, seed: number, codec: PayloadCodec.PayloadCodec["Service"] | undefined) =>
  Effect.gen(function*() {
    const dice = new Dice(seed)
    const client = yield* Client.Client
    const instanceId = "one"
    yield* client.start(Play, { instanceId, payload: script })
    for (let i = 0; i < 4; i++) {
      if (dice.happens(0.5)) yield* client.send(Note, instanceId, `${canary} note ${i}`)
      if (dice.happens(0.5)) yield* client.send(Ring, instanceId, `${canary} ring ${i}`)
      if (dice.happens(0.3)) yield* TestRuntime.restart
      if (dice.happens(0.3)) yield* TestRuntime.crash
      yield* TestRuntime.advance("10 minutes")
    }
    const exit = yield* outcome(client.wait(Play, instanceId))
    const status = yield* client.status(instanceId)
    const value = yield* client.read(Value, instanceId)
    const stored = yield* TestRuntime.history(instanceId)
    const history = codec === undefined ? stored : yield* reveal(stored, codec)
    return { stored: JSON.stringify(stored), seen: JSON.stringify({ exit, status, value, history }) }
  }).pipe(
    Effect.provide(
      codec === undefined
        ? TestRuntime.layer(runtime)
        : Layer.provide(TestRuntime.layer(runtime), Layer.succeed(PayloadCodec.PayloadCodec, codec))
    ),
    Effect.scoped
  )

const objects = new Map<string, Uint8Array>()
const chains = [
  PayloadCodec.make([encryption("k1")]),
  PayloadCodec.make([PayloadCodec.compression({ above: 40 })]),
  PayloadCodec.make([
    PayloadCodec.compression({ above: 40 }),
    encryption("k1"),
    PayloadCodec.objectStore({
      // Virtual time would pass while a promise is pending.
      put: (name, bytes) => Effect.sync(() => objects.set(name, bytes)),
      get: (name) => Effect.sync(() => objects.get(name)),
      above: 100
    })
  ])
]

describe("Random programs", () => {
  it.effect("end the same with codecs, and have the same decoded history", () =>
    Effect.gen(function*() {
      const kinds = new Set<string>()
      for (let seed = 1; seed <= times(60); seed++) {
        const dice = new Dice(seed)
        const steps = Array.from({ length: 2 + dice.below(6) }, (): Step => dice.pick(Step.literals))
        const script = { steps, text: canary, depth: 2, seen: [] }
        const codec = dice.pick(chains)
        const plain = yield* run(script, seed, undefined)
        const coded = yield* run(script, seed, codec)
        const what = `seed ${seed}: ${steps.join(", ")}`
        assert.isTrue(coded.seen === plain.seen, what)
        if (codec !== chains[1]) assert.isFalse(coded.stored.includes(canary), what)
        for (const step of steps) kinds.add(step)
      }
      assert.strictEqual(kinds.size, Step.literals.length)
      assert.isAbove(objects.size, 0)
    }))
})
