// A runtime of duroxide itself, in Rust: `node rust.js <binary> <database URL> <schema> [options]`. Runs until SIGTERM;
// prints `ready` when it serves, and `ran <activity> <instance> <input>` for each activity it runs.
import * as Generators from "./generators.ts"
import { parsed } from "./generators.ts"

interface Options {
  /** Names of `activities`; `RustStep` unless set. */
  readonly activities?: ReadonlyArray<string>
  /** Names of `orchestrations`; all that begin with `Rust` unless set. */
  readonly orchestrations?: ReadonlyArray<string>
  /** Carried by every activity that is called without one of its own. */
  readonly tag?: string
  /** Whether activities and `RustPause` never end, as in a process that hangs. */
  readonly hang?: boolean
  /** Settings of the runtime, as the binding names them. */
  readonly settings?: object
}

const [binary, url, schema, json = "{}"] = process.argv.slice(2) as [string, string, string, string?]
const options = JSON.parse(json) as Options
const native = Generators.load(binary)

const activity = (name: string, input: unknown, tag = options.tag) => ({
  type: "activity",
  name,
  input: JSON.stringify(input),
  ...(tag !== undefined && { tag })
})

const orchestrations: Generators.Orchestrations = {
  /** Five activities in a row and side by side: n + 5. */
  *RustSteps(n: number) {
    const first: number = yield activity("RustStep", n)
    const three: ReadonlyArray<{ ok: number }> = yield {
      type: "join",
      tasks: [0, 1, 2].map((i) => activity("RustStep", first + i))
    }
    return yield activity("RustStep", three[2]!.ok)
  },
  /** Waits for the lossy signal `Answer` and a letter in the signal `Letters`. */
  *RustErrand(name: string, instanceId) {
    native.orchestrationSetCustomStatus(instanceId, "asking")
    const answer: unknown = yield { type: "waitEvent", name: "Answer" }
    native.orchestrationSetValue(instanceId, "answer", JSON.stringify(answer))
    const letter: unknown = yield { type: "dequeueEvent", queueName: "Letters" }
    return { name, answer, letter }
  },
  /** Fails with what it was given. */
  // oxlint-disable-next-line require-yield
  *RustFailure(message: string) {
    throw message
  },
  /** Calls an activity of any side. */
  *RustCall({ name, n, tag }: { name: string; n: number; tag?: string }) {
    return yield activity(name, n, tag)
  },
  /** Runs an orchestration of any side as its child. */
  *RustParent({ child, id, input }: { child: string; input: unknown; id?: string }) {
    const called = { name: child, input: JSON.stringify(input) }
    return parsed(
      yield id === undefined
        ? { type: "subOrchestration", ...called }
        : { type: "subOrchestrationWithId", ...called, instanceId: id }
    )
  },
  /** Uses built-in activities of the Rust runtime. */
  *RustClock() {
    const now: number = yield { type: "utcNow" }
    const guid: string = yield { type: "newGuid" }
    return { now, guid }
  },
  /** A turn during which the whole process can hang, including JavaScript. */
  // oxlint-disable-next-line require-yield
  *RustPause() {
    if (options.hang === true) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
    return "continued"
  },
  /** Has the name of an orchestration of the other side. */
  // oxlint-disable-next-line require-yield
  *OurSteps() {
    throw new Error("run by the wrong side")
  }
}

const activities: Record<string, (n: number) => Promise<unknown>> = {
  RustStep: async (n) => {
    await new Promise((resolve) => options.hang === true || setTimeout(resolve, 2 + (n % 10)))
    return n + 1
  },
  /** An activity of the other side, which this one may have as well. */
  OurStep: async (n) => n + 1
}

const provider = await native.JsPostgresProvider.connectWithSchema(url, schema)
const runtime = native.JsRuntime.fromPostgres(provider, {
  dispatcherPollIntervalMs: 20,
  logLevel: "error",
  ...options.settings
})
const theirs = Object.keys(orchestrations).filter((name) => name.startsWith("Rust"))
Generators.register(runtime, orchestrations, options.orchestrations ?? theirs)
for (const name of options.activities ?? ["RustStep"]) {
  runtime.registerActivity(name, async (payload) => {
    const { input, instanceId } = Generators.callOf(payload)
    process.stdout.write(`ran ${name} ${instanceId} ${input}\n`)
    return JSON.stringify(await activities[name]!(JSON.parse(input) as number))
  })
}
await runtime.start()
process.stdout.write("ready\n")
process.on("SIGTERM", () => {
  void runtime.shutdown(100).then(() => process.exit(0))
})
