// A client process of a chaos run: `node client.js <JSON of Options>`. Before each call it notes what it is about to
// do, and afterwards that it was acknowledged, so that the audit knows what must have happened even if it was killed.
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Tasks } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { calls } from "./calls.ts"
import {
  Approval,
  Box1,
  Box2,
  Decision,
  Flow,
  journal,
  Launcher,
  Letters,
  Pill,
  Ping,
  TurnPill
} from "./definitions.ts"
import { random } from "./random.ts"
import * as tasks from "./taskCalls.ts"
import { Errand } from "./tasks.ts"

interface Options {
  readonly url: string
  /** Names the process, its instances and its letters. */
  readonly name: string
  readonly log: string
  readonly task: Work | Finish | Pings | Poison
}

/** Starts instances and sends messages until it is killed. */
interface Work {
  readonly task: "work"
  readonly seed: number
  readonly flows: ReadonlyArray<(typeof Flow)["payload"]["Type"]["kind"]>
  readonly versions: ReadonlyArray<string>
  /** Boxes that an earlier process of this sender left open. */
  readonly openBoxes: ReadonlyArray<string>
}

/** Starts boxes that got letters but were never started, and closes boxes. */
interface Finish {
  readonly task: "finish"
  readonly starts: ReadonlyArray<{ readonly id: string; readonly program: "Flow" | "Box" }>
  readonly boxes: ReadonlyArray<string>
}

/** Asks processes, by their names, whether they take work: orchestrations and activities, or tasks. */
interface Pings {
  readonly task: "ping"
  readonly runtimes: ReadonlyArray<string>
  readonly taskWorkers: ReadonlyArray<string>
  readonly timeoutMs: number
}

/** Starts something that kills every process that runs it. */
interface Poison {
  readonly task: "poison"
  readonly program: "Pill" | "TurnPill" | "TaskPill"
}

const { log, name, task, url } = JSON.parse(process.argv[2]!) as Options
const note = journal(log)

const acknowledged = calls(note)

const close = (client: Client.Client["Service"], box: string) =>
  acknowledged({ call: "close", id: box }, client.send(Letters, box, "close"))

const work = Effect.fnUntraced(function*(
  client: Client.Client["Service"],
  service: Tasks.Tasks["Service"],
  options: Work
) {
  const chance = random(options.seed)
  let count = 0
  const freshId = (kind: string) => `${kind}-${name}-${++count}`

  const flows = Effect.gen(function*() {
    const id = freshId("flow")
    const payload = { n: count, kind: chance.one(options.flows) }
    if (chance.is(0.05)) yield* acknowledged({ call: "cancel", id }, client.terminate(id, "before its start"))
    const start = client.start(Flow, { instanceId: id, payload })
    yield* acknowledged({ call: "start", id, program: "Flow", payload }, start)
    yield* Effect.sleep(chance.between(100, 600))
  })

  const errands = Effect.gen(function*() {
    const id = freshId("errand")
    const payload = { n: count, rounds: chance.between(1, 6) }
    const start = client.start(Errand, { instanceId: id, payload })
    yield* acknowledged({ call: "start", id, program: "Errand", payload }, start)
    yield* Effect.sleep(chance.between(500, 2_500))
  })

  const approvals = Effect.gen(function*() {
    const id = freshId("approval")
    const ms = chance.between(2_000, 6_000)
    if (
      !(yield* acknowledged(
        { call: "start", id, program: "Approval", payload: ms },
        client.start(Approval, {
          instanceId: id,
          payload: ms
        })
      ))
    ) return
    const asking = Effect.map(
      client.status(id),
      (status) => status._tag !== "Running" || Option.getOrNull(status.customStatus) === "asking"
    )
    yield* Effect.repeat(
      Effect.andThen(Effect.sleep(50), Effect.orElseSucceed(asking, () => false)),
      { until: (is) => is }
    )
    yield* Effect.sleep(chance.between(0, ms))
    if (chance.is(0.8)) yield* acknowledged({ call: "raise", id }, client.send(Decision, id))
  })

  const write = (box: string) =>
    Effect.suspend(() => {
      const letter = `${name}:${++count}`
      return acknowledged({ call: "send", id: box, letter }, client.send(Letters, box, letter))
    })

  const startBox = Effect.gen(function*() {
    const id = freshId("box")
    const payload = { read: [] }
    if (chance.is(0.3)) {
      const launcher = freshId("launcher")
      const launch = client.start(Launcher, { instanceId: launcher, payload: id })
      return (yield* acknowledged({ call: "start", id: launcher, program: "Launcher", payload: id }, launch))
        ? id
        : undefined
    }
    if (chance.is(0.2)) yield* Effect.repeat(write(id), { times: 2 })
    const definition = chance.one([Box1, Box2].filter(({ version }) => options.versions.includes(version)))
    const version = chance.is(0.3) ? "newest" as const : "own" as const
    const start = client.start(definition, { instanceId: id, payload, version })
    return (yield* acknowledged({ call: "start", id, program: "Box", payload }, start)) ? id : undefined
  })

  /** One box after the other, letter by letter: each is acknowledged, or has failed, before the next is sent. */
  const letters = Effect.fnUntraced(function*(inherited: string | undefined) {
    let box = inherited
    while (true) {
      box ??= yield* startBox
      if (box === undefined) continue
      const length = chance.between(20, 120)
      for (let i = 0; i < length; i++) {
        yield* write(box)
        yield* Effect.sleep(chance.between(0, 200))
      }
      // Others are left open until the end of the run.
      if (chance.is(0.5)) { while (!(yield* close(client, box))) yield* Effect.sleep(500) }
      box = undefined
    }
  })

  const boxes = [0, 1, 2].map((i) => letters(options.openBoxes[i]))
  const loops = [flows, approvals, errands, ...tasks.work({ service, acknowledged, chance, freshId, url })]
  yield* Effect.all([...loops.map((loop) => Effect.forever(loop)), ...boxes], { concurrency: "unbounded" })
})

const finish = Effect.fnUntraced(function*(client: Client.Client["Service"], options: Finish) {
  for (const { id, program } of options.starts) {
    const ours = { instanceId: id, ifExists: "ignore" } as const
    const flow = { n: 0, kind: "steps" } as const
    const box = { read: [] }
    yield* program === "Flow"
      ? acknowledged({ call: "start", id, program, payload: flow }, client.start(Flow, { ...ours, payload: flow }))
      : acknowledged({ call: "start", id, program, payload: box }, client.start(Box1, { ...ours, payload: box }))
  }
  yield* Effect.forEach(options.boxes, (box) => close(client, box), { concurrency: 10 })
})

const ping = (
  client: Client.Client["Service"],
  service: Tasks.Tasks["Service"],
  { runtimes, taskWorkers, timeoutMs }: Pings
) =>
  Effect.all([
    ...runtimes.map((process) =>
      acknowledged(
        { call: "ping", id: process, part: "runtime" },
        client.execute(Ping(process), { instanceId: `ping-${name}-${process}`, timeout: timeoutMs })
      )
    ),
    ...taskWorkers.map((process) =>
      acknowledged(
        { call: "ping", id: process, part: "tasks" },
        tasks.ping(service, process, `${name}-${process}`, timeoutMs)
      )
    )
  ], { concurrency: "unbounded" })

const poison = Effect.fnUntraced(function*(
  client: Client.Client["Service"],
  service: Tasks.Tasks["Service"],
  { program }: Poison
) {
  const id = `pill-${name}`
  if (program === "TaskPill") {
    yield* tasks.poison(service, acknowledged, id)
    return
  }
  const definition = program === "Pill" ? Pill : TurnPill
  const start = client.start(definition, { instanceId: id, ifExists: "ignore" })
  yield* Effect.repeat(acknowledged({ call: "start", id, program, payload: null }, start), { until: (is) => is })
})

const perform = (client: Client.Client["Service"], service: Tasks.Tasks["Service"]) => {
  switch (task.task) {
    case "work":
      return work(client, service, task)
    case "finish":
      return finish(client, task)
    case "ping":
      return ping(client, service, task)
    case "poison":
      return poison(client, service, task)
  }
}

await Effect.gen(function*() {
  const client = yield* Client.Client
  const service = yield* Tasks.Tasks
  yield* Effect.sync(() => process.stdout.write("ready\n"))
  return yield* perform(client, service)
}).pipe(
  Effect.provide(
    Layer.merge(Client.layer, Tasks.layer).pipe(
      Layer.provide(PrismaProvider.layer({ url, migrate: "verify" }))
    )
  ),
  Effect.runPromise
)
process.exit(0)
