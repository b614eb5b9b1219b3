/**
 * What operators do at random beside running work: interrupt, terminate, retry, fork, pause, redrive, delete, deploy
 * wrong code and bring the old code back. In the end every instance has ended, and its history and its effects say the
 * same.
 */
import { assert } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { Admin, Provider } from "duroxide-prisma/provider"
import { replayHistory } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Event from "../../src/model/Event.ts"
import { PauseTarget } from "../../src/model/Pause.ts"
import { signalsSetAside } from "../../src/model/shared/markers.ts"
import { isEnd } from "../../src/model/shared/recordedEnds.ts"
import { Dice } from "../replay/randomPrograms.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const instances = 40
const actions = 400
const kinds = ["send", "junk", "redrive", "interrupt", "terminate", "retry", "fork", "pause", "resume", "delete"]

const Do = Activity.make("Do", { payload: Schema.String, success: Schema.String })
const Undo = Activity.make("Undo", { payload: Schema.String })
const Check = Activity.make("Check", { error: Schema.String })
const Work = Orchestration.make("Work", { success: Schema.String, error: Schema.String })
const Part = Orchestration.make("Part", { success: Schema.String })
const Go = Signal.make("Go", { payload: Schema.Literal("go") })
const ForeignGo = Signal.make("Go", { payload: Schema.Unknown })

/** What happens outside, by idempotency key. */
const makeWorld = () => ({
  /** Whether `Work` is the program that does not fit its histories. */
  isEdited: false,
  /** Whether `Check` fails. */
  fails: false,
  done: new Map<string, string>(),
  undone: new Map<string, Array<string>>()
})

type World = ReturnType<typeof makeWorld>

const undoOnFailure = (key: string) =>
  Effect.addFinalizer((exit) => exit._tag === "Failure" ? Undo.execute(key) : Effect.void)

const step = (what: string) => Effect.uninterruptible(Effect.tap(Do.execute(what), undoOnFailure))

const handlers = (world: World) =>
  Layer.mergeAll(
    Work.toLayer(() =>
      Effect.scoped(Effect.gen(function*() {
        if (world.isEdited) yield* Effect.promise(() => new Promise(() => {}))
        const first = yield* step("first")
        yield* Effect.timeoutOption(Go.wait, "200 millis")
        const part = yield* Part.with({ onLateSuccess: Undo.execute }).execute().pipe(
          Effect.tap(undoOnFailure),
          Effect.timeoutOption("150 millis")
        )
        yield* Check.execute()
        yield* Go.wait
        return `${first} ${part._tag}`
      }))
    ),
    Part.toLayer(() =>
      Effect.scoped(Effect.gen(function*() {
        const key = yield* step("part")
        yield* Effect.sleep("100 millis")
        return key
      }))
    ),
    Do.toLayer((what) =>
      Effect.flatMap(Activity.Call, ({ idempotencyKey, instanceId }) =>
        Effect.gen(function*() {
          yield* Effect.sleep("5 millis")
          world.done.set(idempotencyKey, `${instanceId} ${what}`)
          return idempotencyKey
        }))
    ),
    Check.toLayer(() => Effect.suspend(() => world.fails ? Effect.fail("no") : Effect.sleep("50 millis"))),
    Undo.toLayer((key) =>
      Effect.map(Activity.Call, ({ idempotencyKey }) => {
        const keys = world.undone.get(key) ?? []
        if (!keys.includes(idempotencyKey)) world.undone.set(key, [...keys, idempotencyKey])
      })
    )
  )

const runtime = (world: World) =>
  Runtime.layer({ orchestrations: [Work, Part], activities: [Do, Undo, Check] }).pipe(
    Layer.provide(handlers(world)),
    // Every turn is a replay, so that wrong code is seen at once.
    Layer.provide(RuntimeConfig.layer({ onMismatch: "block", warmInstances: 0, unreadableSignalTimeout: 0 })),
    Layer.provideMerge(Layer.succeed(Logger.CurrentLoggers, new Set()))
  )

/** Replays a history with the program that ran it. */
export const replay = (events: ReadonlyArray<Event.Event>) => {
  const [started] = events
  const name = started?._tag === "OrchestrationStarted" ? started.name : ""
  return name === "Part"
    ? Effect.asVoid(replayHistory(Part, events)).pipe(Effect.provide(handlers(makeWorld())))
    : Effect.asVoid(replayHistory(Work, events)).pipe(Effect.provide(handlers(makeWorld())))
}

/** Returns the histories of all instances. */
export const run = Effect.fnUntraced(function*(seed: number) {
  const world = makeWorld()
  yield* Layer.build(runtime(world))
  const dice = new Dice(seed)
  const client = yield* Client.Client
  const admin = yield* Admin.Admin
  const provider = yield* Provider.Provider
  const ids = Array.from({ length: instances }, (_, n) => `w-${n}`)
  /** Instances whose effects are not undone exactly once, by what an operator has done to them. */
  const touched = new Set<string>()
  const counts: Record<string, number> = {}
  const act = (name: string, call: Effect.Effect<unknown, { readonly _tag: string; readonly message: string }>) =>
    Effect.matchEffect(call, {
      onSuccess: () => Effect.sync(() => void (counts[name] = (counts[name] ?? 0) + 1)),
      // Refused, with a reason: nothing was done.
      onFailure: (error) =>
        /^(retry|fork|Client\.redrive|pause|delete\w*|interrupt|terminate|send|resume): |Provider/.test(error.message)
          ? Effect.sync(() => void (counts[`${name} refused`] = (counts[`${name} refused`] ?? 0) + 1))
          : Effect.fail(error)
    })

  for (const instanceId of ids) yield* client.start(Work, { instanceId })
  let forks = 0
  const isMissing = () => kinds.some((kind) => counts[kind] === undefined)
  // More of them on a slow machine, until each has succeeded once.
  for (let n = 0; n < actions || n < 10 * actions && isMissing(); n++) {
    const id = dice.pick(ids)
    const all = [id, `${id}::sub::${dice.pick([5, 6, 7, 8, 9])}`]
    switch (
      dice.pick([
        "go",
        "junk",
        "redrive",
        "interrupt",
        "deadline",
        "terminate",
        "retry",
        "from",
        "fork",
        "pause",
        "edit",
        "fail",
        "delete"
      ])
    ) {
      case "go":
        yield* act("send", client.send(Go, id, "go"))
        break
      case "junk":
        yield* act("junk", client.send(ForeignGo, id, "junk"))
        break
      case "redrive": {
        // It is set aside again.
        for (const one of [id, ...ids]) {
          const [event] = signalsSetAside(yield* provider.read(one))
          if (event === undefined) continue
          yield* act("redrive", client.redrive(one, { event }))
          break
        }
        break
      }
      case "interrupt":
        yield* act("interrupt", client.interrupt(id, "random"))
        break
      case "deadline":
        touched.add(id)
        yield* act("interrupt", client.interrupt(id, "random", { deadline: dice.pick([0, 30, 300]) }))
        break
      case "terminate":
        touched.add(id)
        yield* act("terminate", client.terminate(dice.pick(all), "random"))
        break
      case "retry":
        touched.add(id)
        yield* act("retry", admin.retry(id))
        break
      case "from":
        touched.add(id)
        yield* act("retry", admin.retry(id, { from: dice.pick([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) }))
        break
      case "fork": {
        const newId = `f-${forks++}`
        // The fork may undo what the other one has done.
        touched.add(newId).add(id)
        yield* act(
          "fork",
          admin.fork(id, { atEvent: dice.pick([1, 2, 3, 4, 5, 6, 7, 8]), newId }).pipe(
            Effect.tap(Effect.sync(() => ids.push(newId)))
          )
        )
        break
      }
      case "pause": {
        const target = dice.happens(0.7)
          ? PauseTarget.Instance({ instanceId: id })
          : PauseTarget.Orchestration({ name: dice.pick(["Work", "Part"]) })
        yield* act("pause", admin.pause(target))
        yield* Effect.sleep(dice.pick([0, 5, 30]))
        yield* act("resume", admin.resume(target))
        break
      }
      case "edit":
        world.isEdited = true
        yield* Effect.sleep(dice.pick([5, 20]))
        world.isEdited = false
        break
      case "fail":
        world.fails = true
        yield* Effect.sleep(dice.pick([5, 50]))
        world.fails = false
        break
      case "delete":
        touched.add(id)
        yield* act("delete", admin.deleteInstance(id))
    }
    // In any state there is one cause, and only an ended instance has ended.
    const explained = yield* Effect.option(admin.explain(dice.pick(ids)))
    if (Option.isSome(explained)) {
      const { cause, sentence, status } = explained.value
      assert.strictEqual(cause._tag === "Ended", status !== "Running", sentence)
      assert.notStrictEqual(cause._tag, "Nothing", sentence)
    }
    yield* Effect.sleep(dice.pick([0, 0, 2, 10]))
  }

  // The cure of all that is blocked, and the signals that are missing.
  const open = Effect.gen(function*() {
    yield* provider.wakeBlocked({ orchestrations: ["Work", "Part"], activities: [] })
    const { instances: running } = yield* admin.list({ status: "Running", limit: 1_000 })
    for (const { instanceId } of running) {
      if (!instanceId.includes("::")) yield* Effect.ignore(client.send(Go, instanceId, "go"))
    }
    return running.length
  })
  yield* waitUntil(Effect.map(open, (count) => count === 0))

  const histories = new Map<string, ReadonlyArray<Event.Event>>()
  const { instances: all } = yield* admin.list({ limit: 1_000 })
  for (const { instanceId } of all) {
    const events = yield* admin.readHistory(instanceId)
    histories.set(instanceId, events)
    const state = yield* admin.getInstanceInfo(instanceId)
    assert.strictEqual(events[0]?._tag, "OrchestrationStarted")
    assert.lengthOf(events.filter(isEnd), 1, `${instanceId} has one end`)
    for (const [index, event] of events.entries()) {
      if (index > 0) assert.isAbove(event.eventId, events[index - 1]!.eventId)
      assert.strictEqual(event.instanceId, instanceId)
      if (event.sourceEventId === null) continue
      assert.isTrue(events.some(({ eventId }) => eventId === event.sourceEventId), `${instanceId} #${event.eventId}`)
    }
    const root = instanceId.split("::")[0]!
    if (touched.has(root)) continue
    const effects = [...world.done].filter(([, of]) => of.startsWith(`${instanceId} `)).map(([key]) => key)
    const hasFailed = ({ status }: Pick<Admin.InstanceInfo, "status">) => status === "Failed" || status === "Cancelled"
    const isUndone = hasFailed(state) ||
      (state.parentInstanceId !== null && hasFailed(yield* admin.getInstanceInfo(root)))
    if (state.status === "Completed" && state.parentInstanceId !== null && !isUndone) {
      // Its parent may have timed out just before it ended.
      for (const key of effects) assert.isAtMost(world.undone.get(key)?.length ?? 0, 1)
      continue
    }
    for (const key of effects) {
      assert.lengthOf(world.undone.get(key) ?? [], isUndone ? 1 : 0, `${state.status} ${instanceId}: ${key}`)
    }
  }
  assert.isFalse(isMissing(), JSON.stringify(counts))
  return histories
})
