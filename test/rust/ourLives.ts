/**
 * The orchestrations of `rustLives.ts` in TypeScript: the same names, the same payloads, the same sequence of actions.
 */
import { Activity, Client, KeyValue, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import type { Message } from "../programs/lives.ts"

const Answer = Signal.make("Answer", { payload: Schema.String, unawaited: "lost" })
const Go = Signal.make("Go", { payload: Schema.String, unawaited: "lost" })
const Letters = Signal.make("Letters", { payload: Schema.String })

const number = { payload: Schema.Int, success: Schema.Int } as const
const Step = Activity.make("Step", number)
const Hang = Activity.make("Hang", number)
const Refuse = Activity.make("Refuse", { ...number, error: Schema.String })

const Steps = Orchestration.make("Steps", number)
const Call = Orchestration.make("Call", {
  payload: Schema.Struct({
    name: Schema.Literals(["Step", "Hang", "Refuse"]),
    n: Schema.Int,
    tag: Schema.optional(Schema.String)
  }),
  success: Schema.Int,
  error: Schema.String
})
const Seated = Orchestration.make("Seated", {
  payload: Schema.Struct({ n: Schema.Int, session: Schema.String }),
  success: Schema.Int
})
const Failure = Orchestration.make("Failure", { payload: Schema.String, error: Schema.String })
const Errand = Orchestration.make("Errand", {
  payload: Schema.String,
  success: Schema.Struct({ name: Schema.String, answer: Schema.String, letter: Schema.String })
})
const Rounds = Orchestration.make("Rounds", {
  payload: Schema.Struct({ round: Schema.Int, last: Schema.Int, heard: Schema.Array(Schema.String) }),
  success: Schema.Array(Schema.String)
})
const Keys = Orchestration.make("Keys", {
  payload: Schema.Struct({ execution: Schema.Int }),
  success: Schema.String
})
const Parent = Orchestration.make("Parent", {
  payload: Schema.Struct({ child: Schema.String, id: Schema.optional(Schema.String), input: Schema.Unknown }),
  success: Schema.Unknown,
  error: Schema.String
})
const Detaching = Orchestration.make("Detaching", {
  payload: Schema.Struct({ name: Schema.String, input: Schema.String }),
  success: Schema.String
})
const Nap = Orchestration.make("Nap", number)
const Race = Orchestration.make("Race", { payload: Schema.Int, success: Schema.String })
const Stuck = Orchestration.make("Stuck", { payload: Schema.Null, success: Schema.String })

const all = [Steps, Call, Seated, Failure, Errand, Rounds, Keys, Parent, Detaching, Nap, Race, Stuck] as const

/** The names that an import lets this package serve. */
export const served = all.map(({ name }) => name)

const value = (key: string) => KeyValue.make(key, Schema.Unknown)

const handlers = Layer.mergeAll(
  Step.toLayer((n) => Effect.succeed(n + 1)),
  Hang.toLayer((n) => Effect.succeed(n + 1)),
  Refuse.toLayer((n) => Effect.fail(`Activity 'Refuse' JS execution failed: GenericFailure, Error: refused ${n}`)),
  Steps.toLayer(Effect.fn(function*(n) {
    const first = yield* Step.execute(n)
    const three = yield* Effect.all([0, 1, 2].map((i) => Step.execute(first + i)), { concurrency: "unbounded" })
    return yield* Step.execute(three[2]!)
  })),
  Call.toLayer(Effect.fn(function*({ n, name, tag }) {
    const options = tag === undefined ? {} : { tag }
    if (name === "Refuse") return yield* Refuse.with(options).execute(n)
    return yield* (name === "Step" ? Step : Hang).with(options).execute(n)
  })),
  Seated.toLayer(Effect.fn(function*({ n, session }) {
    const second = yield* Step.with({ sessionId: session }).execute(n)
    return yield* Step.with({ sessionId: session, tag: "later" }).execute(second)
  })),
  Failure.toLayer((message) => Effect.fail(message)),
  Errand.toLayer(Effect.fn(function*(name) {
    yield* Orchestration.setCustomStatus("asking")
    const answer = yield* Answer.wait
    yield* value("answer").set(answer)
    yield* Orchestration.setCustomStatus("answered")
    return { name, answer, letter: yield* Letters.wait }
  })),
  Rounds.toLayer(Effect.fn(function*({ heard, last, round }) {
    yield* value(`round ${round}`).set(heard.length)
    yield* Orchestration.setCustomStatus(`round ${round}`)
    const letters = [...heard, yield* Letters.wait]
    if (round < last) return yield* Rounds.continueAsNew({ round: round + 1, last, heard: letters })
    return letters
  })),
  Keys.toLayer(Effect.fn(function*({ execution }) {
    if (execution === 1) {
      for (const key of ["a", "b", "c"]) yield* value(key).set(key)
      yield* Step.execute(1)
      yield* value("c").set("replaced")
      return yield* Keys.continueAsNew({ execution: 2 })
    }
    yield* value("a").clear
    yield* value("b").set("second")
    yield* value("d").set(4)
    yield* Go.wait
    yield* KeyValue.clearAll
    yield* value("e").set(null)
    return "kept"
  })),
  Parent.toLayer(Effect.fn(function*({ child, id, input }) {
    if (child === "Call") return yield* Call.execute(input as typeof Call.payload.Type)
    if (child === "Failure") return yield* Failure.execute(String(input))
    return child === "Errand"
      ? yield* Errand.executeWithId({ instanceId: id!, payload: String(input) })
      : yield* Steps.executeWithId({ instanceId: id!, payload: Number(input) })
  })),
  Detaching.toLayer(Effect.fn(function*({ input }) {
    const { instanceId } = yield* Orchestration.Instance
    yield* Errand.startDetached({ instanceId: `${instanceId}-detached`, payload: input })
    return "detached"
  })),
  Nap.toLayer(Effect.fn(function*(ms) {
    yield* Effect.sleep(ms)
    return yield* Step.execute(1)
  })),
  Race.toLayer((ms) => Effect.raceFirst(Effect.as(Effect.sleep(ms), "late"), Effect.as(Go.wait, "woken"))),
  Stuck.toLayer(() => Effect.succeed("continued"))
)

/** A process that serves all of them, in a schema that an import has filled. */
export const app = (url: string) =>
  Runtime.layer({ orchestrations: all, activities: [Step, Hang, Refuse] }).pipe(
    Layer.provide(handlers),
    Layer.provide(RuntimeConfig.layer({ tags: { _tag: "Any" } })),
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer({ url, migrate: "verify" })),
    Layer.provideMerge(Logger.layer([]))
  )

export const deliver = Effect.fnUntraced(function*(instance: string, message: Message) {
  const client = yield* Client.Client
  const id = `${instance}${message.to ?? ""}`
  if ("cancel" in message) return yield* client.terminate(id, message.cancel)
  if ("send" in message) return yield* client.send(Letters, id, String(message.data))
  return yield* client.send(message.raise === "Go" ? Go : Answer, id, String(message.data))
})
