// A runtime of duroxide itself, in Rust: `node rust.js <binary> <database URL> <schema> [options]`. Runs until SIGTERM;
// prints `ready` when it serves, and `ran <activity> <instance> <input>` for each activity it runs.
//
// The binary is that of duroxide's Node binding. It runs the orchestrations in Rust and asks JavaScript for the next
// step of a generator: what is yielded here says what to schedule, and the answer is its outcome.
import { createRequire } from "node:module"

interface Native {
  readonly JsPostgresProvider: { connectWithSchema(url: string, schema: string): Promise<unknown> }
  readonly JsRuntime: { fromPostgres(provider: unknown, options: object): NativeRuntime }
  orchestrationSetCustomStatus(instanceId: string, status: string): void
  orchestrationSetValue(instanceId: string, key: string, value: string): void
}

interface NativeRuntime {
  setGeneratorDriver(
    create: (payload: string) => string,
    next: (payload: string) => string,
    dispose: (id: string) => string
  ): void
  registerActivity(name: string, run: (payload: string) => Promise<string>): void
  registerOrchestration(name: string): void
  start(): Promise<void>
  shutdown(timeoutMs: number): Promise<void>
}

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

type Steps = Generator<object, unknown, any>

const [binary, url, schema, json = "{}"] = process.argv.slice(2) as [string, string, string, string?]
const options = JSON.parse(json) as Options
const native = createRequire(import.meta.url)(binary) as Native

const activity = (name: string, input: unknown, tag = options.tag) => ({
  type: "activity",
  name,
  input: JSON.stringify(input),
  ...(tag !== undefined && { tag })
})

/** What an answer holds: its JSON, when it was not parsed on the way. */
const parsed = (answer: unknown): unknown => {
  if (typeof answer !== "string") return answer
  try {
    return JSON.parse(answer)
  } catch {
    return answer
  }
}

const orchestrations: Record<string, (input: any, instanceId: string) => Steps> = {
  /** Five activities in a row and side by side: n + 5. */
  *RustSteps(n: number) {
    const first: number = yield activity("RustStep", n)
    const three: ReadonlyArray<{ ok: number }> = yield {
      type: "join",
      tasks: [0, 1, 2].map((i) => activity("RustStep", first + i))
    }
    return yield activity("RustStep", three[2]!.ok)
  },
  /** Waits for the signal `Answer` and a letter in the mailbox `Letters`. */
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

const generators = new Map<number, Steps>()
let lastId = 0

const drive = (id: number, step: () => IteratorResult<object>): string => {
  try {
    const { done, value } = step()
    if (done !== true) return JSON.stringify({ status: "yielded", generatorId: id, task: value })
    generators.delete(id)
    return JSON.stringify({ status: "completed", output: JSON.stringify(value ?? null) })
  } catch (error) {
    generators.delete(id)
    return JSON.stringify({ status: "error", message: error instanceof Error ? error.message : error })
  }
}

const create = (payload: string) => {
  const { ctxInfo, input } = JSON.parse(payload) as {
    readonly ctxInfo: { readonly instanceId: string; readonly orchestrationName: string }
    readonly input: string
  }
  const id = ++lastId
  return drive(id, () => {
    const steps = orchestrations[ctxInfo.orchestrationName]!(JSON.parse(input), ctxInfo.instanceId)
    generators.set(id, steps)
    return steps.next()
  })
}

const next = (payload: string) => {
  const { generatorId, isError, result } = JSON.parse(payload) as {
    readonly generatorId: number
    readonly isError: boolean
    readonly result: string
  }
  const steps = generators.get(generatorId)!
  const answer = parsed(result)
  return drive(generatorId, () => isError ? steps.throw(new Error(String(answer))) : steps.next(answer))
}

const dispose = (id: string) => {
  generators.delete(Number(id))
  return "ok"
}

const provider = await native.JsPostgresProvider.connectWithSchema(url, schema)
const runtime = native.JsRuntime.fromPostgres(provider, {
  dispatcherPollIntervalMs: 20,
  logLevel: "error",
  ...options.settings
})
runtime.setGeneratorDriver(create, next, dispose)
const theirs = Object.keys(orchestrations).filter((name) => name.startsWith("Rust"))
for (const name of options.orchestrations ?? theirs) runtime.registerOrchestration(name)
for (const name of options.activities ?? ["RustStep"]) {
  runtime.registerActivity(name, async (payload) => {
    // A line of JSON about the call, then the input.
    const end = payload.indexOf("\n")
    const { instanceId } = JSON.parse(payload.slice(0, end)) as { readonly instanceId: string }
    const input = payload.slice(end + 1)
    process.stdout.write(`ran ${name} ${instanceId} ${input}\n`)
    return JSON.stringify(await activities[name]!(JSON.parse(input) as number))
  })
}
await runtime.start()
process.stdout.write("ready\n")
process.on("SIGTERM", () => {
  void runtime.shutdown(100).then(() => process.exit(0))
})
