/**
 * The application that `cases.ts` misuses.
 */
import {
  Activity,
  KeyValue,
  Orchestration,
  ProgressStream,
  Request,
  Runtime,
  RuntimeConfig,
  Signal
} from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as References from "effect/References"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"

export class Declined extends Schema.TaggedError<Declined>()("Declined", { code: Schema.Int }) {}

/** Any string except 4711. Without such a pattern a number would match, as a string that Rust stored without quotes. */
const Word = Schema.String.check(Schema.isPattern(/^(?!4711$)/u))

/** Lossy. */
export const Hurry = Signal.make("Hurry", { payload: Word, unawaited: "lost" })
export const Go = Signal.make("Go", { payload: Word })
/** `Go` as defined by a sender with another version of the code. */
export const OtherGo = Signal.make("Go", { payload: Schema.Int })
export const Letters = Signal.make("Letters", { payload: Schema.String })
export const Question = Request.make("Question", { payload: Word, success: Schema.String, error: Declined })
/** `Question` as defined by a caller with another version of the code. */
export const OtherQuestion = Request.make("Question", { payload: Schema.Int, success: Schema.String })
export const Note = KeyValue.make("note", Schema.String)
export const Lines = ProgressStream.make("lines", { chunk: Schema.String, maxChunkBytes: 10, keepChunks: 2 })
export const OtherLines = ProgressStream.make("lines", { chunk: Schema.Int })
export const OtherNote = KeyValue.make("note", Schema.Int)

/** 4 MiB of JSON text, with its quotes, and one byte more than that. */
export const largest = "x".repeat(4 * 1024 * 1024 - 2)
export const tooLarge = `${largest}x`
/** Text that JSON can represent, but PostgreSQL cannot. */
export const odd = "a\0b\ud800c"

const text = { payload: Word, success: Schema.String } as const

// -- activities ------------------------------------------------------------------------------------

export const Work = Activity.make("Work", { ...text, error: Declined })
/** `Work` as defined by a caller with another version of the code. */
const OtherWork = Activity.make("Work", { payload: Schema.Int, success: Schema.String, error: Declined })
/** `Work` as defined by a caller that gives it limits by its payload. */
const KeyedWork = Activity.make("Work", { ...text, error: Declined, limitKey: (key) => key })
const UnservedActivity = Activity.make("UnservedActivity")

/** The state of the activity `hang`, by instance. */
export const hanging = new Map<string, "running" | "interrupted">()

const work = Work.toLayer(Effect.fn(function*(what) {
  const { instanceId } = yield* Activity.Call
  switch (what) {
    case "fail":
      return yield* new Declined({ code: 7 })
    case "throw":
      throw new Error("thrown")
    case "nonsense":
      return 1 as unknown as string
    case "too large":
      return tooLarge
    case "fail with nonsense":
      return yield* Effect.fail("nonsense" as unknown as Declined)
    case "hang":
      hanging.set(instanceId, "running")
      return yield* Effect.sleep(10_000_000_000).pipe(
        Effect.onInterrupt(() => Effect.sync(() => hanging.set(instanceId, "interrupted"))),
        Effect.as("never")
      )
    default:
      return what
  }
}))

// -- orchestrations --------------------------------------------------------------------------------

export const Echo = Orchestration.make("Echo", text)
/** `Echo` as defined by a caller with another version of the code. */
export const OtherEcho = Orchestration.make("Echo", { payload: Schema.Int, success: Schema.Int })
/** `Echo` as defined by a caller that gives it limits by its payload. */
export const KeyedEcho = Orchestration.make("Echo", { ...text, limitKey: (key) => key })
export const Waits = Orchestration.make("Waits", { success: Schema.String })
export const Waits2 = Orchestration.make("Waits", { success: Schema.String, version: "2.0.0" })
export const Reads = Orchestration.make("Reads", { success: Schema.String })
/** Waits for a lossy signal. */
export const Hurries = Orchestration.make("Hurries", { success: Schema.String })
/** Answers questions until a signal comes. */
export const Serves = Orchestration.make("Serves", { success: Schema.String })
/** Waits for a signal. Its clean-up takes a letter, and cannot undo `stuck`. */
export const Cleans = Orchestration.make("Cleans", { success: Schema.String })
/** Calls `Work`. */
export const Calls = Orchestration.make("Calls", { ...text, error: Declined })
export const Unserved = Orchestration.make("Unserved")
/** Has many activities open, which no process takes. Its error's Schema reads any text. */
export const Fans = Orchestration.make("Fans", { error: Schema.String })
/** Waits in one way, then in another way, as if its code had been edited. */
export const Edited = Orchestration.make("Edited")
/** Does one of `deeds`. */
/** Its errors are texts: a message of the runtime must not be mistaken for one of them. */
export const Does = Orchestration.make("Does", { ...text, error: Schema.String })

const ask = (what: string) => Effect.orDie(Work.execute(what))

/** Programs with a mistake, by name. */
const deeds: {
  readonly [name: string]: Effect.Effect<string, never, Orchestration.Instance | ProgressStream.StreamWriter>
} = {
  throw: Effect.sync(() => {
    throw new Error("thrown")
  }),
  "return nonsense": Effect.succeed(1 as unknown as string),
  "return too much": Effect.succeed(tooLarge),
  "await a promise": Effect.promise(() => new Promise<string>(() => {})),
  "await a promise later": Effect.andThen(
    ask("done"),
    Effect.promise(() => new Promise<string>(() => {}))
  ),
  "loop without waiting": Effect.gen(function*() {
    while (true) yield* Effect.void
  }),
  "call with nonsense": ask(1 as unknown as string),
  "call with too much": ask(tooLarge),
  "call with a bad key": Effect.orDie(KeyedWork.execute("k".repeat(257))),
  "call as others do": Effect.orDie(OtherWork.execute(4711)),
  "call an unserved activity": Effect.as(UnservedActivity.execute(), ""),
  "time out": Work.with({ timeout: "20 millis" }).execute("hang").pipe(
    Effect.result,
    Effect.map((answer) => Result.isSuccess(answer) ? answer.success : answer.failure._tag)
  ),
  "start a child under a reserved id": Echo.executeWithId({ instanceId: "sub::1", payload: "" }),
  "start a child under a taken id": Echo.executeWithId({ instanceId: "taken", payload: "" }),
  "start detached under a reserved id": Effect.as(Echo.startDetached({ instanceId: "a::sub::b", payload: "" }), ""),
  "start detached under a taken id": Effect.as(
    Echo.startDetached({ instanceId: "taken, too", payload: "second" }),
    "started"
  ),
  "set a large value": Effect.as(Note.set("x".repeat(65_537)), ""),
  "set odd text": Effect.as(Note.set(odd), ""),
  "set many values": Effect.as(
    Effect.forEach(Array.from({ length: 151 }), (_, index) => KeyValue.make(`k${index}`, Schema.Int).set(index)),
    ""
  ),
  "set a long key": Effect.as(KeyValue.make("k".repeat(2561), Schema.Int).set(1), ""),
  "set an odd key": Effect.as(KeyValue.make(odd, Schema.Int).set(1), ""),
  "set a long status": Effect.as(Orchestration.setCustomStatus("x".repeat(262_145)), ""),
  "set an odd attribute": Effect.as(Orchestration.setAttributes({ a: odd }), ""),
  "set many attributes": Effect.as(
    Orchestration.setAttributes(Object.fromEntries(Array.from({ length: 21 }, (_, index) => [`a${index}`, index]))),
    ""
  ),
  append: Effect.as(Lines.appendAll(["a", "b", "c"]), ""),
  "append nonsense": Effect.as(Lines.append(1 as unknown as string), ""),
  "append too much": Effect.as(Lines.append("x".repeat(10)), ""),
  "set an odd status": Effect.as(Orchestration.setCustomStatus(odd), "")
}

export type Deed = keyof typeof deeds

export const edited = new Set<string>()

/** Ended instances for which the runtime has dropped a message. Only a line of its log shows that. */
export const dropped = new Set<string>()

const drops = Logger.make(({ fiber, message }) => {
  if (!String(message).includes("messages for an instance that has ended are dropped")) return
  dropped.add(String(fiber.getRef(References.CurrentLogAnnotations)["instance_id"]))
})

export const handlers = Layer.mergeAll(
  work,
  Echo.toLayer(Effect.succeed),
  Waits.toLayer(() => Go.wait),
  Waits2.toLayer(() => Effect.map(Go.wait, (answer) => `two: ${answer}`)),
  Reads.toLayer(() => Letters.wait),
  Serves.toLayer(Effect.fnUntraced(function*() {
    let count = 0
    yield* Question.serve(
      Effect.fnUntraced(function*(what) {
        if (what === "fail") return yield* new Declined({ code: 7 })
        if (what === "throw") throw new Error("thrown")
        return what === "large" ? "x".repeat(65_536) : String(++count)
      }),
      {
        validate: (what) => {
          if (what === "validate throws") throw new Error("thrown")
          return what === "validate is wrong"
            ? Result.fail({ code: "seven" } as unknown as Declined)
            : Result.succeed(undefined)
        }
      }
    )
    return yield* Go.wait
  })),
  Hurries.toLayer(() => Hurry.wait),
  Cleans.toLayer(() =>
    Effect.ensuring(
      Go.wait,
      Effect.flatMap(Letters.wait, (letter) => letter === "stuck" ? Effect.die("cannot undo") : Effect.void)
    )
  ),
  Fans.toLayer(() =>
    Effect.forEach(
      Array.from({ length: 20 }),
      () => UnservedActivity.with({ tag: "no process takes this" }).execute(),
      { concurrency: "unbounded", discard: true }
    )
  ),
  Calls.toLayer((what) => Work.execute(what)),
  Edited.toLayer(() =>
    Effect.flatMap(
      Orchestration.Instance,
      ({ instanceId }) => Effect.asVoid(edited.has(instanceId) ? ask("edited") : Go.wait)
    )
  ),
  Does.toLayer((deed) => deeds[deed]!)
)

/**
 * Everything but a store. Two failed deliveries make work poison, so that tests do not wait long; and every turn is a
 * replay, as after a deployment.
 */
export const runtime = Runtime.layer({
  orchestrations: [Echo, Waits, Waits2, Reads, Serves, Hurries, Cleans, Calls, Fans, Edited, Does],
  activities: [Work]
}).pipe(
  Layer.provide(handlers),
  Layer.provide(RuntimeConfig.layer({ maxAttempts: 2, warmInstances: 0, onMismatch: "block", build: "this build" })),
  Layer.provideMerge(Logger.layer([drops])),
  Layer.provideMerge(Layer.succeed(References.MinimumLogLevel, "Debug"))
)
