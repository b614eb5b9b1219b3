// A runtime of duroxide in Rust for the orchestrations of `lives.ts`, on any of its stores:
// `node rustLives.js <binary> <sqlite: or PostgreSQL URL> <schema> <options>`. Prints `ready` when it serves.
import * as Generators from "./generators.ts"
import { parsed } from "./generators.ts"

interface Options {
  /** Whether the activity `Hang` and the turns of `Stuck` never end, as in a process that is killed. */
  readonly hangs: boolean
  /** Settings of the runtime, as the binding names them. */
  readonly settings: object
}

const [binary, url, schema, json] = process.argv.slice(2) as [string, string, string, string]
const { hangs, settings } = JSON.parse(json) as Options
const native = Generators.load(binary)

interface Called {
  readonly name: string
  readonly n: number
  readonly tag?: string
  readonly sessionId?: string
}

const activity = ({ n, ...rest }: Called) => ({ type: "activity", input: JSON.stringify(n), ...rest })
const timer = (delayMs: number) => ({ type: "timer", delayMs })
const event = (name: string) => ({ type: "waitEvent", name })
const letter = { type: "dequeueEvent", queueName: "Letters" }
const set = (id: string, key: string, value: unknown) => native.orchestrationSetValue(id, key, JSON.stringify(value))

const orchestrations: Generators.Orchestrations = {
  /** Five activities in a row and side by side: n + 5. */
  *Steps(n: number) {
    const first: number = yield activity({ name: "Step", n })
    const three: ReadonlyArray<{ ok: number }> = yield {
      type: "join",
      tasks: [0, 1, 2].map((i) => activity({ name: "Step", n: first + i }))
    }
    return yield activity({ name: "Step", n: three[2]!.ok })
  },
  /** One activity of any name and tag. */
  *Call(call: Called) {
    return yield activity(call)
  },
  /** Two activities in one session, the second with a tag. */
  *Seated({ n, session }: { n: number; session: string }) {
    const second: number = yield activity({ name: "Step", n, sessionId: session })
    return yield activity({ name: "Step", n: second, sessionId: session, tag: "later" })
  },
  // oxlint-disable-next-line require-yield
  *Failure(message: string) {
    throw message
  },
  /** Waits for the event `Answer` and a letter. */
  *Errand(name: string, id) {
    native.orchestrationSetCustomStatus(id, "asking")
    const said: unknown = yield event("Answer")
    set(id, "answer", said)
    native.orchestrationSetCustomStatus(id, "answered")
    return { name, answer: said, letter: yield letter }
  },
  /** An execution for each letter. */
  *Rounds({ heard, last, round }: { round: number; last: number; heard: ReadonlyArray<string> }, id) {
    set(id, `round ${round}`, heard.length)
    native.orchestrationSetCustomStatus(id, `round ${round}`)
    const all = [...heard, yield letter]
    if (round === last) return all
    yield { type: "continueAsNew", input: JSON.stringify({ round: round + 1, last, heard: all }) }
    return null
  },
  /** Keys that are set, replaced and cleared, in two executions. */
  *Keys({ execution }: { execution: number }, id) {
    if (execution === 1) {
      for (const key of ["a", "b", "c"]) set(id, key, key)
      yield activity({ name: "Step", n: 1 })
      set(id, "c", "replaced")
      yield { type: "continueAsNew", input: JSON.stringify({ execution: 2 }) }
    }
    native.orchestrationClearValue(id, "a")
    set(id, "b", "second")
    set(id, "d", 4)
    yield event("Go")
    native.orchestrationClearAllValues(id)
    set(id, "e", null)
    return "kept"
  },
  *Parent({ child, id, input }: { child: string; input: unknown; id?: string }) {
    const called = { name: child, input: JSON.stringify(input) }
    return parsed(
      yield id === undefined
        ? { type: "subOrchestration", ...called }
        : { type: "subOrchestrationWithId", ...called, instanceId: id }
    )
  },
  *Detaching({ input, name }: { name: string; input: unknown }, id) {
    yield { type: "orchestration", name, instanceId: `${id}-detached`, input: JSON.stringify(input) }
    return "detached"
  },
  /** Built-in activities of the Rust runtime. */
  *Clock() {
    return [yield { type: "utcNow" }, yield { type: "newGuid" }]
  },
  *Nap(ms: number) {
    yield timer(ms)
    return yield activity({ name: "Step", n: 1 })
  },
  /** A time and an event: what comes first. */
  *Race(ms: number) {
    const { index }: { index: number } = yield { type: "select", tasks: [timer(ms), event("Go")] }
    return index === 0 ? "late" : "woken"
  },
  /** A turn during which the whole process can hang, including JavaScript. */
  // oxlint-disable-next-line require-yield
  *Stuck() {
    if (hangs) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
    return "continued"
  }
}

const activities: Record<string, (n: number) => Promise<number>> = {
  Step: async (n) => n + 1,
  Refuse: (n) => Promise.reject(new Error(`refused ${n}`)),
  Hang: (n) => hangs ? new Promise(() => {}) : Promise.resolve(n + 1)
}

const options = { dispatcherPollIntervalMs: 20, logLevel: "error", ...settings }
const runtime = url.startsWith("sqlite:")
  ? new native.JsRuntime(await native.JsSqliteProvider.open(url), options)
  : native.JsRuntime.fromPostgres(await native.JsPostgresProvider.connectWithSchema(url, schema), options)
Generators.register(runtime, orchestrations)
for (const [name, run] of Object.entries(activities)) {
  runtime.registerActivity(
    name,
    async (payload) => JSON.stringify(await run(JSON.parse(Generators.callOf(payload).input) as number))
  )
}
await runtime.start()
process.stdout.write("ready\n")
