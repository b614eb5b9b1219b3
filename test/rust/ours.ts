/**
 * Our side of a shared schema: what it runs, and what it knows of the other side's definitions.
 */
import { Activity, Client, KeyValue, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import type { TagFilter } from "../../src/model/Instance.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import type * as FromDriver from "../../src/provider/FromDriver.ts"
import type * as Rust from "./Rust.ts"

export const Answer = Signal.make("Answer", { payload: Schema.String, unawaited: "lost" })
export const Letters = Signal.make("Letters", { payload: Schema.String })
export const Heard = KeyValue.make("answer", Schema.String)
const Other = KeyValue.make("other", Schema.Int)

const number = { payload: Schema.Int, success: Schema.Int } as const
const errand = {
  payload: Schema.String,
  success: Schema.Struct({ name: Schema.String, answer: Schema.String, letter: Schema.String })
} as const

export const OurStep = Activity.make("OurStep", number)
const Failing = Activity.make("Failing", { error: Schema.String })
const Unserved = Activity.make("Unserved", { ...number, tag: "unserved" })

/** Five activities in a row and side by side: n + 5. */
export const OurSteps = Orchestration.make("OurSteps", number)
/** Waits for the lossy signal `Answer` and a letter in the signal `Letters`. */
export const OurErrand = Orchestration.make("OurErrand", errand)
export const OurFailure = Orchestration.make("OurFailure", { payload: Schema.String, error: Schema.String })
/** Every kind of event a program can cause, in two executions. */
export const OurEverything = Orchestration.make("OurEverything", number)
/** Runs `RustSteps` as its child. */
export const OurParent = Orchestration.make("OurParent", number)
/** Calls `RustStep`, an activity of the other side. */
export const OurCall = Orchestration.make("OurCall", number)
/** Starts `RustSteps` detached, as the instance `<its own>-detached`. */
export const OurDetached = Orchestration.make("OurDetached", { payload: Schema.Int })

const served = { servedBy: "rust" } as const
export const RustStep = Activity.make("RustStep", { ...number, ...served })
export const RustSteps = Orchestration.make("RustSteps", { ...number, ...served })
export const RustErrand = Orchestration.make("RustErrand", { ...errand, ...served })
export const RustCall = Orchestration.make("RustCall", {
  payload: Schema.Struct({ name: Schema.String, n: Schema.Int, tag: Schema.optional(Schema.String) }),
  success: Schema.Int,
  ...served
})
export const RustParent = Orchestration.make("RustParent", {
  payload: Schema.Struct({ child: Schema.String, input: Schema.Int, id: Schema.optional(Schema.String) }),
  success: Schema.Int,
  error: Schema.String,
  ...served
})
export const RustClock = Orchestration.make("RustClock", {
  payload: Schema.Null,
  success: Schema.Struct({ now: Schema.Int, guid: Schema.String }),
  ...served
})
export const RustPause = Orchestration.make("RustPause", { payload: Schema.Null, success: Schema.String, ...served })
export const RustFailure = Orchestration.make("RustFailure", {
  payload: Schema.String,
  error: Schema.String,
  ...served
})

/** A TypeScript program with the name of a Rust one, which no TypeScript process may ever run. */
const Trap = Orchestration.make("RustSteps", number)

const handlers = (ran: Array<string>) =>
  Layer.mergeAll(
    OurStep.toLayer(Effect.fn(function*(n) {
      const { instanceId } = yield* Activity.Call
      ran.push(`OurStep ${instanceId} ${n}`)
      return yield* Effect.as(Effect.sleep(2 + n % 10), n + 1)
    })),
    Failing.toLayer(() => Effect.fail("expected")),
    OurSteps.toLayer(Effect.fn(function*(n) {
      const first = yield* OurStep.execute(n)
      const three = yield* Effect.all([0, 1, 2].map((i) => OurStep.execute(first + i)), { concurrency: "unbounded" })
      return yield* OurStep.execute(three[2]!)
    })),
    OurErrand.toLayer(Effect.fn(function*(name) {
      yield* Orchestration.setCustomStatus("asking")
      const answer = yield* Answer.wait
      yield* Heard.set(answer)
      return { name, answer, letter: yield* Letters.wait }
    })),
    OurFailure.toLayer((message) => Effect.fail(message)),
    OurEverything.toLayer(Effect.fn(function*(n) {
      if (n === 0) {
        yield* Heard.set("carried")
        return yield* OurEverything.continueAsNew(1)
      }
      yield* Orchestration.setCustomStatus("everything")
      yield* Effect.raceAll([
        Effect.sleep("10 millis"),
        Effect.asVoid(OurErrand.with({ onInterrupt: "terminate" }).execute("unserved")),
        Effect.asVoid(Unserved.execute(1)),
        Effect.asVoid(Letters.wait),
        Effect.asVoid(Answer.wait)
      ])
      yield* Orchestration.setCustomStatus(null)
      yield* Other.set(1)
      yield* Other.clear
      yield* KeyValue.clearAll
      yield* Effect.ignore(Failing.execute())
      yield* Effect.ignore(OurFailure.execute("expected"))
      yield* OurSteps.execute(1)
      yield* OurSteps.startDetached({ instanceId: "detached", payload: 1 })
      return yield* OurStep.execute(n)
    })),
    OurParent.toLayer((n) => RustSteps.execute(n)),
    OurCall.toLayer((n) => RustStep.execute(n)),
    OurDetached.toLayer(Effect.fn(function*(n) {
      const { instanceId } = yield* Orchestration.Instance
      yield* RustSteps.startDetached({ instanceId: `${instanceId}-detached`, payload: n })
    })),
    Trap.toLayer(() => Effect.die("run by the wrong side"))
  )

export interface Options {
  /** Defaults to those without a tag. */
  readonly tags?: TagFilter
  readonly longPolling?: FromDriver.LongPolling
  /** Also registers `RustSteps`, which no TypeScript process may ever run. */
  readonly trap?: boolean
}

/**
 * An application in the shared schema, which it adopts. `ran` gets a line `OurStep <instance> <input>` for each
 * activity.
 */
export const app = (shared: Rust.Shared, ran: Array<string> = [], options: Options = {}) => {
  const traps = options.trap === true ? [Trap] : []
  return Runtime.layer({
    orchestrations: [OurSteps, OurErrand, OurFailure, OurEverything, OurParent, OurCall, OurDetached, ...traps],
    activities: [OurStep, Failing]
  }).pipe(
    Layer.provide(handlers(ran)),
    Layer.provide(RuntimeConfig.layer({ tags: options.tags ?? { _tag: "DefaultOnly" } })),
    Layer.provideMerge(store(shared, options))
  )
}

/** A client without a runtime. */
export const store = ({ schema, url }: Rust.Shared, { longPolling }: Options = {}) =>
  Client.layer.pipe(
    Layer.provideMerge(PrismaProvider.layer({ url, schema, longPolling, migrate: "adopt" })),
    Layer.provideMerge(Logger.layer([]))
  )
