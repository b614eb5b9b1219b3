/**
 * Streams, requests, limits and later starts in the dashboard, beside a runtime.
 */
import { assert, it } from "@effect/vitest"
import { Activity, Orchestration, ProgressStream, Request, Runtime, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Served from "./served.ts"

const Words = ProgressStream.make("words", { chunk: Schema.String })
const Steps = ProgressStream.make("steps", { chunk: Schema.Struct({ done: Schema.Int }) })
const More = Signal.make("More")
const Price = Request.make("Price", {
  payload: { room: Schema.Int },
  success: Schema.Struct({ euros: Schema.Int }),
  error: Schema.Struct({ _tag: Schema.tag("NoRoom"), room: Schema.Int })
})
const Desk = Orchestration.make("Desk")

/** Answers requests and appends to streams until it is terminated. */
const DeskLive = Desk.toLayer(() =>
  Effect.gen(function*() {
    yield* Price.serve(({ room }) =>
      room === 13
        ? Effect.fail({ _tag: "NoRoom" as const, room })
        : room === 99
        ? Effect.die("no such floor")
        : Effect.succeed({ euros: room * 10 })
    )
    yield* Words.appendAll(["Wel", "come"])
    yield* Steps.append({ done: 1 })
    while (true) {
      yield* More.wait
      yield* Words.append("!")
    }
  })
)

const Call = Activity.make("Call", { payload: { tenant: Schema.String }, limitKey: ({ tenant }) => tenant })
const Calls = Orchestration.make("Calls", { payload: { tenant: Schema.String } })
const CallsLive = Calls.toLayer(({ tenant }) =>
  Effect.forEach([1, 2, 3], () => Call.execute({ tenant }), { concurrency: "unbounded", discard: true })
)

const opened = Effect.gen(function*() {
  const { sql, url } = yield* PgServer.database
  yield* Layer.build(
    Runtime.layer({ orchestrations: [Desk, Calls], activities: [Call] }).pipe(
      Layer.provide([DeskLive, CallsLive, Call.toLayer(() => Effect.never)]),
      Layer.provide(PrismaProvider.layer({ url, migrate: "verify" })),
      Layer.provide(Logger.layer([]))
    )
  )
  const served = yield* Served.open(url, { requests: [Price], orchestrations: [Desk] })
  // The runtime says what it serves beside its work, and so perhaps later than it begins.
  yield* waitUntil(Effect.map(served.admin.listProcesses, ({ length }) => length === 1))
  return { ...served, sql }
})

/** A desk that has begun. */
const openedDesk = Effect.gen(function*() {
  const served = yield* opened
  yield* served.client.start(Desk, { instanceId: "desk" })
  const page = yield* served.as("operate")
  yield* waitUntil(Effect.map(page.read.streams({ query: { id: "desk" } }), ({ length }) => length === 2))
  return { ...served, page }
})

it.layer(PgServer.layer, { excludeTestServices: true })("an instance at work in the dashboard", (it) => {
  it.effect("lists its streams, and reads them from the end or from an offset", () =>
    Effect.gen(function*() {
      const { as, page } = yield* openedDesk
      const streams = yield* page.read.streams({ query: { id: "desk" } })
      assert.deepStrictEqual(
        streams.map(({ firstOffset, name, nextOffset }) => [name, firstOffset, nextOffset]),
        [["steps", 0, 1], ["words", 0, 2]]
      )
      const words = yield* page.read.chunks({ query: { id: "desk", stream: "words" } })
      assert.deepStrictEqual(words.chunks.map(({ chunk }) => chunk), ["\"Wel\"", "\"come\""])
      assert.deepInclude(words.chunks[0]!, { offset: 0, event: null, startsOver: false, executionId: 1 })
      assert.isFalse(words.hasEnded)
      const rest = yield* page.read.chunks({ query: { id: "desk", stream: "words", from: 1 } })
      assert.deepStrictEqual(rest.chunks.map(({ offset }) => offset), [1])
      assert.isEmpty((yield* page.read.chunks({ query: { id: "none", stream: "words" } })).chunks)
      assert.strictEqual((yield* page.read.instance({ query: { id: "desk" } })).streams, 2)
      // Without payloads, one sees how many chunks there are, and not what they say.
      const blind = yield* as("blind")
      const hidden = yield* blind.read.chunks({ query: { id: "desk", stream: "words" } })
      assert.deepStrictEqual(hidden.chunks.map(({ chunk }) => chunk), [null, null])
    }))

  it.effect("pages learn of each append", () =>
    Effect.gen(function*() {
      const { client, page } = yield* openedDesk
      const counts = yield* page.read.streamsLive({ query: { id: "desk" } }).pipe(
        Stream.unwrap,
        Stream.map((streams) => streams.find(({ name }) => name === "words")!.nextOffset),
        Stream.tap(() => client.send(More, "desk")),
        Stream.take(3),
        Stream.runCollect
      )
      assert.deepStrictEqual(counts, [2, 3, 4])
    }))

  it.effect("asks an instance: an answer, a refusal and a failure, each in the list and in the audit log", () =>
    Effect.gen(function*() {
      const { as, page } = yield* openedDesk
      const session = yield* page.read.session({})
      assert.deepStrictEqual(session.requests.map(({ name, payload }) => [name, payload !== null]), [["Price", true]])
      const ask = (payload: Schema.Json, name = "Price", timeoutMs = 60_000) =>
        page.operate.request({ payload: { instanceId: "desk", name, payload, timeoutMs } })
      assert.deepInclude(yield* ask({ room: 7 }), {
        outcome: "Answered",
        answer: "{\"euros\":70}",
        message: "desk answered Price"
      })
      assert.deepInclude(yield* ask({ room: 13 }), { outcome: "Refused", answer: "{\"_tag\":\"NoRoom\",\"room\":13}" })
      assert.deepInclude(yield* ask({ room: 99 }), { outcome: "Failed", answer: null })
      // Of a name that the program does not serve: it stays with the instance.
      const late = yield* ask({ secret: 5 }, "Weather", 300)
      assert.deepInclude(late, { outcome: "TimedOut", answer: null })
      assert.deepInclude(yield* Effect.flip(ask({ room: "seven" })), { code: "PayloadMismatch" })
      const gone = page.operate.request({ payload: { instanceId: "none", name: "Price", payload: { room: 1 } } })
      assert.deepInclude(yield* Effect.flip(gone), { _tag: "Refused" })

      const questions = yield* page.read.requests({ query: { id: "desk" } })
      assert.deepStrictEqual(
        questions.map(({ answer, name, payload, state }) => [name, state, payload, answer]),
        [
          ["Weather", "Waiting", "{\"secret\":5}", null],
          ["Price", "Failed", "{\"room\":99}", null],
          ["Price", "Refused", "{\"room\":13}", "{\"_tag\":\"NoRoom\",\"room\":13}"],
          ["Price", "Answered", "{\"room\":7}", "{\"euros\":70}"]
        ]
      )
      const detail = yield* page.read.instance({ query: { id: "desk" } })
      assert.deepStrictEqual(detail.requests, { open: 1, answered: 3 })
      assert.isTrue(detail.waits.some(({ kind, name }) => kind === "request" && name === "Price"))
      assert.isEmpty(detail.keyValues)
      const blind = yield* as("blind")
      const hidden = yield* blind.read.requests({ query: { id: "desk" } })
      assert.notMatch(JSON.stringify(hidden), /euros|secret/)
      const unseen = yield* blind.operate.request({
        payload: { instanceId: "desk", name: "Price", payload: { room: 1 } }
      })
      assert.deepInclude(unseen, { outcome: "Answered", answer: null })

      const { actions } = yield* page.read.actions({ query: {} })
      assert.deepStrictEqual(
        actions.toReversed().map(({ action, details, outcome, target }) => [action, target, details, outcome]),
        [
          ["request", "desk", "Price", "done"],
          ["request", "desk", "Price; Refused", "done"],
          ["request", "desk", "Price; Failed", "done"],
          ["request", "desk", "Weather; TimedOut", "done"],
          ["request", "desk", "Price; the payload does not match its schema", "refused"],
          ["request", "none", actions[1]!.details, "refused"],
          ["request", "desk", "Price", "done"]
        ]
      )
      assert.notMatch(JSON.stringify(actions), /euros|secret|seven/)
    }))

  it.effect("starts later: after a delay or at a time, not both", () =>
    Effect.gen(function*() {
      const { as, client } = yield* opened
      const page = yield* as("operate")
      const start = (instanceId: string, when: { readonly startAtMs?: number; readonly delayMs?: number }) =>
        page.operate.start({ payload: { orchestration: "Desk", instanceId, payload: null, ...when } })
      const startAtMs = Date.parse("2099-01-01T00:00Z")
      assert.strictEqual(
        (yield* start("then", { startAtMs })).message,
        "started then; it begins at 2099-01-01T00:00:00.000Z"
      )
      yield* start("soon", { delayMs: 3_600_000 })
      const then = yield* client.status("then")
      assert.deepInclude(then, { _tag: "Running" })
      assert.strictEqual((yield* page.read.instance({ query: { id: "then" } })).startsAtMs, startAtMs)
      const both = yield* Effect.flip(start("both", { startAtMs, delayMs: 5 }))
      assert.deepInclude(both, { _tag: "Refused", code: "InvalidInput" })
      const unserved = yield* page.operate.start({
        payload: { orchestration: "Ghost", instanceId: "unserved", payload: null, startAtMs }
      })
      assert.strictEqual(
        unserved.message,
        "started unserved; it begins at 2099-01-01T00:00:00.000Z; no living process serves Ghost: it waits until one does"
      )
      const details = (yield* page.read.actions({ query: {} })).actions.map(({ details }) => details)
      assert.includeMembers([...details], ["Desk; at 2099-01-01T00:00:00.000Z", "Desk; in 1 h"])
    }))

  it.effect("sets limits, shows what they hold back, by key, and removes them", () =>
    Effect.gen(function*() {
      const { as, client } = yield* opened
      const page = yield* as("operate")
      const set = (
        kind: "total" | "eachKey" | "key",
        key: string | null,
        concurrency: number | null,
        rate: { readonly count: number; readonly perMs: number; readonly burst: number } | null = null
      ) =>
        page.operate.setLimit({
          payload: { kind: "activity", name: "Call", scope: { kind, key }, bound: { concurrency, rate } }
        })
      assert.strictEqual(
        (yield* set("eachKey", null, 1)).message,
        "set the limit of each key of activity Call: 1 at once"
      )
      yield* set("total", null, null, { count: 600, perMs: 60_000, burst: 10 })
      yield* set("key", "b", 2)
      yield* client.start(Calls, { instanceId: "calls a", payload: { tenant: "a" } })
      yield* client.start(Calls, { instanceId: "calls b", payload: { tenant: "b" } })
      yield* waitUntil(Effect.map(page.read.limits({}), ([limit]) => limit!.inUse === 3 && limit!.waiting === 3))
      const [limit] = yield* page.read.limits({})
      assert.deepInclude(limit!, {
        kind: "activity",
        name: "Call",
        total: { concurrency: null, rate: { count: 600, perMs: 60_000, burst: 10 } },
        eachKey: { concurrency: 1, rate: null },
        keyCount: 2
      })
      assert.sameDeepMembers(
        limit!.keys.map(({ inUse, key, own, waiting }) => [key, own?.concurrency ?? null, inUse, waiting]),
        [["a", null, 1, 2], ["b", 2, 2, 1]]
      )
      assert.deepInclude(yield* Effect.flip(set("total", null, 0)), { _tag: "Refused", code: "InvalidInput" })
      const remove = (scope?: { readonly kind: "key"; readonly key: string }) =>
        page.operate.removeLimit({
          payload: { kind: "activity", name: "Call", ...(scope === undefined ? {} : { scope }) }
        })
      yield* remove({ kind: "key", key: "b" })
      assert.deepInclude(yield* Effect.flip(remove({ kind: "key", key: "b" })), { code: "LimitNotFound" })
      yield* remove()
      assert.isEmpty(yield* page.read.limits({}))
      assert.deepInclude(yield* Effect.flip(remove()), { code: "LimitNotFound" })
      assert.deepStrictEqual(
        (yield* page.read.actions({ query: {} })).actions.toReversed()
          .map(({ action, details, outcome, target }) => [action, target, details, outcome]),
        [
          ["set limit", "each key of activity Call", "1 at once", "done"],
          ["set limit", "activity Call", "600 per 1m, 10 in a burst", "done"],
          ["set limit", "key \"b\" of activity Call", "2 at once", "done"],
          [
            "set limit",
            "activity Call",
            "invalid total: concurrency is 0, but must be a whole number from 1 to 1000000",
            "refused"
          ],
          ["remove limit", "key \"b\" of activity Call", "", "done"],
          [
            "remove limit",
            "key \"b\" of activity Call",
            "there is no limit of key \"b\" of activity Call",
            "refused"
          ],
          ["remove limit", "activity Call", "all", "done"],
          ["remove limit", "activity Call", "there is no limit of activity Call", "refused"]
        ]
      )
    }))

  it.effect("a reader sees all of it, and changes nothing", () =>
    Effect.gen(function*() {
      const { as } = yield* openedDesk
      const reader = yield* as("read")
      assert.strictEqual((yield* reader.read.streams({ query: { id: "desk" } })).length, 2)
      yield* reader.read.requests({ query: { id: "desk" } })
      yield* reader.read.limits({})
      const bound = { concurrency: 1, rate: null }
      for (
        const action of [
          reader.operate.request({ payload: { instanceId: "desk", name: "Price", payload: { room: 1 } } }),
          reader.operate.setLimit({
            payload: { kind: "activity", name: "Call", scope: { kind: "total", key: null }, bound }
          }),
          reader.operate.removeLimit({ payload: { kind: "activity", name: "Call" } })
        ]
      ) {
        assert.strictEqual(
          (yield* Effect.flip(action as Effect.Effect<unknown, { readonly _tag: string }>))._tag,
          "Forbidden"
        )
      }
    }))
})
