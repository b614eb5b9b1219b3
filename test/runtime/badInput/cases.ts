/**
 * Mistakes and their outcomes: the rows of docs/outcomes.md, as tests for any store.
 */
import { assert } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as App from "./app.ts"
import * as requests from "./requests.ts"
import {
  blocked,
  cancelled,
  deedBlocks,
  deedFails,
  fails,
  failure,
  history,
  isRefused,
  refused,
  untilDropped,
  waiting,
  wakeBlocked
} from "./words.ts"
import type { Services, Test } from "./words.ts"

export const sections: { readonly [section: string]: { readonly [does: string]: Test } } = {
  Definitions: {
    "define an orchestration, activity or signal whose name is empty, too long, or has NUL or half a surrogate pair":
      isRefused(
        "is refused: it",
        () => Orchestration.make(""),
        () => Orchestration.make("a\0b"),
        () => Activity.make("\udc00"),
        () => Signal.make("\ud800"),
        () => Signal.make(""),
        () => Orchestration.make("n".repeat(1025))
      ),
    "define a version that is not a semantic version": isRefused(
      "it is not a semantic version like 1.0.0",
      () => Orchestration.make("X", { version: "1" })
    ),
    "serve two programs of one name and version, or two activities of one name": Effect.fnUntraced(function*() {
      for (
        const [runtime, problem] of [
          [
            Layer.provide(Runtime.layer({ orchestrations: [App.Echo, App.Echo] }), App.handlers),
            `orchestration "Echo" 1.0.0 is registered twice`
          ],
          [
            Layer.provide(Runtime.layer({ activities: [App.Work, App.Work] }), App.handlers),
            `activity "Work" is registered twice`
          ]
        ] as const
      ) {
        const exit = yield* Effect.exit(Effect.scoped(Layer.build(runtime)))
        assert.include(Exit.isFailure(exit) ? Cause.pretty(exit.cause) : "", problem)
      }
    })
  },

  Starting: {
    "start an id that is running": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Waits, { instanceId })
      yield* refused(client.start(App.Waits, { instanceId }), "InstanceAlreadyExists", instanceId)
      yield* waiting(instanceId)
      yield* client.send(App.Go, instanceId, "first")
      assert.strictEqual(yield* client.wait(App.Waits, instanceId), "first")
    }),
    "start an id that has ended": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.execute(App.Echo, { instanceId, payload: "first" })
      yield* refused(client.start(App.Echo, { instanceId, payload: "second" }), "InstanceAlreadyExists")
      assert.strictEqual(yield* client.wait(App.Echo, instanceId), "first")
    }),
    "start an id that is taken, with `ifExists: \"ignore\"`": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.execute(App.Echo, { instanceId, payload: "first" })
      const answer = yield* client.execute(App.Echo, { instanceId, payload: "second", ifExists: "ignore" })
      assert.strictEqual(answer, "first")
    }),
    "start another version of an id that is taken": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Waits, { instanceId })
      yield* refused(client.start(App.Waits2, { instanceId }), "InstanceAlreadyExists")
      yield* client.start(App.Waits2, { instanceId, ifExists: "ignore" })
      yield* waiting(instanceId)
      yield* client.send(App.Go, instanceId, "answer")
      assert.strictEqual(yield* client.wait(App.Waits2, instanceId), "answer")
    }),
    "start another orchestration under an id that is taken": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Waits, { instanceId })
      yield* refused(client.start(App.Echo, { instanceId, payload: "x" }), "InstanceAlreadyExists")
      yield* client.start(App.Echo, { instanceId, payload: "x", ifExists: "ignore" })
      yield* waiting(instanceId)
      assert.strictEqual((yield* client.status(instanceId))._tag, "Running")
    }),
    "start one id twenty times at once": Effect.fnUntraced(function*(client, instanceId) {
      const starts = Array.from({ length: 20 }, (_, n) => client.start(App.Echo, { instanceId, payload: String(n) }))
      const [started, refusals] = yield* Effect.partition(starts, (start) => start, { concurrency: "unbounded" })
      assert.lengthOf(started, 1)
      assert.lengthOf(refusals.filter(({ _tag }) => _tag === "InstanceAlreadyExists"), 19)
      yield* client.wait(App.Echo, instanceId)
    }),
    "start an orchestration that no process serves": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Unserved, { instanceId })
      yield* refused(client.wait(App.Unserved, instanceId, { timeout: "300 millis" }), "WaitTimeout")
      assert.strictEqual((yield* client.status(instanceId))._tag, "Running")
      assert.deepStrictEqual(yield* history(instanceId), [])
    }),
    "start with a payload that its Schema refuses": Effect.fnUntraced(function*(client, instanceId) {
      const payload = 1 as unknown as string
      yield* refused(
        client.start(App.Echo, { instanceId, payload }),
        "PayloadMismatch",
        `payload of orchestration "Echo" does not match its schema: Expected string`
      )
      assert.strictEqual((yield* client.status(instanceId))._tag, "NotFound")
    }),
    "start with a payload that the program's Schema refuses": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.OtherEcho, { instanceId, payload: 4711 })
      const problem = `payload of orchestration "Echo" does not match its schema: `
      yield* blocked(client, instanceId, "DataUnreadable", problem)
    }),
    "start with a payload of more than 4 MiB": Effect.fnUntraced(function*(client, instanceId) {
      yield* refused(
        client.start(App.Echo, { instanceId, payload: App.tooLarge }),
        "PayloadTooLarge",
        `payload of orchestration "Echo" has 4194305 bytes, the limit is 4194304`
      )
      assert.strictEqual((yield* client.status(instanceId))._tag, "NotFound")
      assert.lengthOf(yield* client.execute(App.Echo, { instanceId, payload: App.largest }), App.largest.length)
    }),
    "start with NUL or half a surrogate pair in the payload": Effect.fnUntraced(function*(client, instanceId) {
      assert.strictEqual(yield* client.execute(App.Echo, { instanceId, payload: App.odd }), App.odd)
    }),
    "start an orchestration whose `limitKey` is empty, or has more than 256 bytes": Effect.fnUntraced(
      function*(client, instanceId) {
        for (const key of ["", "k".repeat(257)]) {
          yield* refused(client.start(App.KeyedEcho, { instanceId, payload: key }), "InvalidInput", "limitKey")
        }
        assert.strictEqual((yield* client.status(instanceId))._tag, "NotFound")
      }
    ),
    "start with an attribute that has a bad name or value, or with more than 20": Effect.fnUntraced(
      function*(client, instanceId) {
        const many = Object.fromEntries(Array.from({ length: 21 }, (_, index) => [`a${index}`, index]))
        for (const attributes of [{ "": 1 }, { a: App.odd }, { a: NaN }, { a: new Date(NaN) }, many]) {
          yield* refused(
            client.start(App.Echo, { instanceId, payload: "x", attributes }),
            "InvalidInput",
            "attributes"
          )
        }
        assert.strictEqual((yield* client.status(instanceId))._tag, "NotFound")
      }
    ),
    "use an id that is empty, or has NUL, half a surrogate pair or more than 2,048 bytes": Effect.fnUntraced(
      function*(client) {
        for (
          const [instanceId, problem] of [
            ["", "it is empty"],
            ["a\0b", "NUL"],
            ["\ud800", "surrogate"],
            ["é".repeat(1025), "it has 2050 bytes, the limit is "]
          ] as const
        ) {
          const calls: ReadonlyArray<Effect.Effect<unknown, unknown>> = [
            client.start(App.Echo, { instanceId, payload: "x" }),
            client.wait(App.Echo, instanceId),
            client.status(instanceId),
            client.send(App.Go, instanceId, "x"),
            client.send(App.Letters, instanceId, "x"),
            client.read(App.Note, instanceId),
            client.interrupt(instanceId, "x"),
            client.terminate(instanceId, "x")
          ]
          for (const call of calls) yield* refused(call, "InvalidInput", "instanceId", problem)
        }
      }
    ),
    "start an id of more than 1,024 bytes": Effect.fnUntraced(function*(client) {
      const instanceId = "é".repeat(1024)
      const start = client.start(App.Echo, { instanceId, payload: "x" })
      yield* refused(start, "InvalidInput", "it has 2048 bytes, the limit is 1024")
      yield* client.send(App.Go, instanceId, "x")
      yield* client.send(App.Letters, instanceId, "x")
      yield* client.terminate(instanceId, "x")
      assert.isTrue(Option.isNone(yield* client.read(App.Note, instanceId)))
      assert.strictEqual((yield* client.status(instanceId))._tag, "NotFound")
    }),
    "start an id that begins with `sub::` or contains `::sub::`": Effect.fnUntraced(function*(client) {
      for (const instanceId of ["sub::1", "parent::sub::1"]) {
        yield* refused(
          client.start(App.Echo, { instanceId, payload: "x" }),
          "InvalidInput",
          "'sub::' is reserved for child orchestrations"
        )
      }
    }),
    ...requests.starting
  },

  "Signals, interruption": {
    "send to an unknown id": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.send(App.Letters, instanceId, "early")
      yield* client.send(App.Letters, instanceId, "later")
      assert.strictEqual((yield* client.status(instanceId))._tag, "NotFound")
      yield* client.start(App.Reads, { instanceId })
      assert.strictEqual(yield* client.wait(App.Reads, instanceId), "early")
    }),
    "send to an instance that does not wait for it yet": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Reads, { instanceId })
      yield* client.send(App.Letters, instanceId, "first")
      yield* client.send(App.Letters, instanceId, "second")
      assert.strictEqual(yield* client.wait(App.Reads, instanceId), "first")
    }),
    "send a lossy signal to an instance that does not wait for it, or before its start": Effect.fnUntraced(
      function*(client, instanceId) {
        yield* client.send(App.Hurry, instanceId, "too early")
        yield* client.start(App.Hurries, { instanceId })
        yield* waiting(instanceId)
        yield* client.send(Signal.make("Other", { unawaited: "lost" }), instanceId, undefined)
        yield* client.send(App.Hurry, instanceId, "heard")
        assert.strictEqual(yield* client.wait(App.Hurries, instanceId), "heard")
      }
    ),
    "send to an instance that has ended": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.execute(App.Echo, { instanceId, payload: "x" })
      const events = yield* history(instanceId)
      yield* client.send(App.Letters, instanceId, "too late")
      yield* untilDropped(client, instanceId)
      assert.deepStrictEqual(yield* history(instanceId), events)
    }),
    "interrupt an instance": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Cleans, { instanceId })
      yield* waiting(instanceId)
      yield* client.interrupt(instanceId, "stop")
      yield* refused(client.wait(App.Cleans, instanceId, { timeout: "100 millis" }), "WaitTimeout")
      yield* client.send(App.Letters, instanceId, "undone")
      yield* cancelled(client.wait(App.Cleans, instanceId), "stop")
      const stuck = `${instanceId}, stuck`
      yield* client.send(App.Letters, stuck, "stuck")
      yield* client.start(App.Cleans, { instanceId: stuck })
      yield* waiting(stuck)
      yield* client.interrupt(stuck, "stop")
      yield* fails(client.wait(App.Cleans, stuck), "cannot undo")
    }),
    "interrupt an instance twice": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Cleans, { instanceId })
      yield* waiting(instanceId)
      yield* client.interrupt(instanceId, "first", { deadline: "1 hour" })
      yield* client.interrupt(instanceId, "second", { deadline: "1 day" })
      yield* client.send(App.Letters, instanceId, "undone")
      yield* cancelled(client.wait(App.Cleans, instanceId), "first")
    }),
    "interrupt an instance that does not end before its deadline": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Cleans, { instanceId })
      yield* waiting(instanceId)
      yield* client.interrupt(instanceId, "stop", { deadline: "200 millis" })
      yield* cancelled(client.wait(App.Cleans, instanceId), "stop (past its deadline)")
    }),
    "interrupt an instance that is blocked": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Does, { instanceId, payload: "await a promise later" })
      yield* blocked(client, instanceId, "NotDurable")
      yield* client.interrupt(instanceId, "stop", { deadline: 0 })
      yield* wakeBlocked(App.Does)
      // Its next try may come before the deadline has passed: the interruption ends what it awaits.
      yield* cancelled(client.wait(App.Does, instanceId), /^stop( \(past its deadline\))?$/)
      const other = `${instanceId}, other`
      yield* client.start(App.Does, { instanceId: other, payload: "await a promise" })
      yield* blocked(client, other, "NotDurable")
      yield* client.interrupt(other, "stop")
      yield* cancelled(client.wait(App.Does, other), "stop")
    }),
    "interrupt or terminate an instance that no living process serves": Effect.fnUntraced(
      function*(client, instanceId) {
        yield* client.start(App.Unserved, { instanceId })
        yield* client.interrupt(instanceId, "stop", { deadline: 0 })
        yield* client.terminate(instanceId, "stop")
        yield* refused(client.wait(App.Unserved, instanceId, { timeout: "300 millis" }), "WaitTimeout")
        const { sentence } = yield* (yield* Admin.Admin).explain(instanceId)
        assert.include(sentence, "whose termination has come and was not read, has not begun, and no living process")
        yield* (yield* Admin.Admin).deleteInstance(instanceId, { force: true })
        assert.strictEqual((yield* client.status(instanceId))._tag, "NotFound")
      }
    ),
    "interrupt or terminate an id before its start": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.terminate(instanceId, "not wanted")
      assert.strictEqual((yield* client.status(instanceId))._tag, "NotFound")
      // It would end at once, so that only the termination can end it otherwise.
      yield* cancelled(client.execute(App.Echo, { instanceId, payload: "x" }), "not wanted")
      const other = `${instanceId}, other`
      yield* client.interrupt(other, "not wanted")
      yield* cancelled(client.execute(App.Waits, { instanceId: other }), "not wanted")
    }),
    "interrupt or terminate an instance that is to begin later (`startAt`, `delay`)": Effect.fnUntraced(
      function*(client, instanceId) {
        yield* client.start(App.Echo, { instanceId, payload: "x", delay: "3650 days" })
        yield* client.terminate(instanceId, "not wanted")
        yield* cancelled(client.wait(App.Echo, instanceId), "not wanted")
        const other = `${instanceId}, other`
        yield* client.start(App.Waits, { instanceId: other, delay: "3650 days" })
        yield* client.interrupt(other, "not wanted")
        yield* cancelled(client.wait(App.Waits, other), "not wanted")
      }
    ),
    "terminate an instance": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Fans, { instanceId })
      yield* waiting(instanceId)
      yield* client.terminate(instanceId, "stop")
      yield* cancelled(client.wait(App.Fans, instanceId), "stop")
      assert.deepStrictEqual(yield* client.status(instanceId), {
        _tag: "Cancelled",
        reason: "stop",
        customStatus: Option.none()
      })
      // Each open activity is one event after the end.
      assert.strictEqual((yield* history(instanceId)).at(-1), "ActivityCancelRequested")
    }),
    "interrupt or terminate an instance that has ended": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.execute(App.Echo, { instanceId, payload: "x" })
      yield* client.interrupt(instanceId, "too late")
      yield* client.terminate(instanceId, "too late")
      yield* untilDropped(client, instanceId)
      assert.strictEqual((yield* client.status(instanceId))._tag, "Completed")
    }),
    "terminate an instance twice": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Waits, { instanceId })
      yield* waiting(instanceId)
      yield* client.terminate(instanceId, "first")
      yield* client.terminate(instanceId, "second")
      yield* cancelled(client.wait(App.Waits, instanceId), "first")
    }),
    "interrupt or terminate with NUL or half a surrogate pair in the reason": (client, instanceId) =>
      Effect.andThen(
        refused(client.interrupt(instanceId, App.odd), "InvalidInput", "invalid reason", "NUL"),
        refused(client.terminate(instanceId, App.odd), "InvalidInput", "invalid reason", "NUL")
      ),
    "send a payload that its Schema refuses": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Waits, { instanceId })
      yield* waiting(instanceId)
      yield* refused(client.send(App.OtherGo, instanceId, 1.5), "PayloadMismatch", `payload of signal "Go"`)
      yield* refused(client.send(App.Go, instanceId, App.tooLarge), "PayloadTooLarge", `payload of signal "Go"`)
      yield* client.send(App.Go, instanceId, "heard")
      // It would have received what was sent before, had that been stored.
      assert.strictEqual(yield* client.wait(App.Waits, instanceId), "heard")

      const reader = `${instanceId}, reader`
      yield* refused(
        client.send(App.Letters, reader, 1 as unknown as string),
        "PayloadMismatch",
        `payload of signal "Letters"`
      )
      yield* client.send(App.Letters, reader, "read")
      yield* client.start(App.Reads, { instanceId: reader })
      assert.strictEqual(yield* client.wait(App.Reads, reader), "read")
    }),
    "send a payload that the program's Schema refuses": Effect.fnUntraced(
      function*(client, instanceId) {
        yield* client.start(App.Waits, { instanceId })
        yield* waiting(instanceId)
        yield* client.send(App.OtherGo, instanceId, 4711)
        yield* blocked(client, instanceId, "DataUnreadable", `payload of signal "Go" does not match its schema: `)
        // Until it is set aside: see setAside.test.ts.
      }
    )
  },

  Requests: requests.requests,

  "Waiting and reading": {
    "wait for an unknown id": Effect.fnUntraced(function*(client, instanceId) {
      yield* refused(client.wait(App.Echo, instanceId, { timeout: "30 millis" }), "WaitTimeout", "after 30 ms")
    }),
    "wait with a timeout that is too short": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Waits, { instanceId })
      yield* waiting(instanceId)
      yield* refused(client.wait(App.Waits, instanceId, { timeout: "30 millis" }), "WaitTimeout", "it continues")
      yield* client.send(App.Go, instanceId, "done")
      assert.strictEqual(yield* client.wait(App.Waits, instanceId), "done")
    }),
    "wait with `timeout: 0`": Effect.fnUntraced(function*(client, instanceId) {
      yield* refused(client.wait(App.Echo, instanceId, { timeout: 0 }), "WaitTimeout", "after 0 ms")
      yield* client.execute(App.Echo, { instanceId, payload: "seven" })
      assert.strictEqual(yield* client.wait(App.Echo, instanceId, { timeout: 0 }), "seven")
    }),
    "wait with the definition of another orchestration": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.execute(App.Echo, { instanceId, payload: "text" })
      assert.strictEqual(yield* client.wait(App.Waits, instanceId), "text")
    }),
    "wait with a Schema that refuses the result": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.execute(App.Echo, { instanceId, payload: "secret" })
      yield* refused(
        client.wait(App.OtherEcho, instanceId),
        "PayloadMismatch",
        `result of orchestration "Echo" does not match its schema: Expected number`
      )
    }),
    "ask for the status or a value of an unknown id": Effect.fnUntraced(function*(client, instanceId) {
      assert.deepStrictEqual(yield* client.status(instanceId), { _tag: "NotFound" })
      assert.deepStrictEqual(yield* client.read(App.Note, instanceId), Option.none())
    }),
    "read a value with a Schema that refuses it": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.execute(App.Does, { instanceId, payload: "set odd text" })
      yield* refused(client.read(App.OtherNote, instanceId), "PayloadMismatch", `value of key "note"`)
    }),
    "read a stream of an unknown id": Effect.fnUntraced(function*(client, instanceId) {
      const found = yield* Stream.runCollect(client.readStream(App.Lines, instanceId, { follow: false }))
      assert.deepStrictEqual(found, [])
      const waited = Effect.timeoutOption(Stream.runCollect(client.readStream(App.Lines, instanceId)), "30 millis")
      assert.deepStrictEqual(yield* waited, Option.none())
    }),
    "read a stream from a chunk that is no longer kept": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.execute(App.Does, { instanceId, payload: "append" })
      yield* refused(
        Stream.runCollect(client.readStream(App.Lines, instanceId, { from: 0 })),
        "ChunksMissing",
        "no longer has the chunks 0 to 0: read on from 1"
      )
    }),
    "read a stream from an offset that it has not reached": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.execute(App.Does, { instanceId, payload: "append" })
      yield* refused(
        Stream.runCollect(client.readStream(App.Lines, instanceId, { from: 4 })),
        "ChunksMissing",
        "its next is 3: read it from the beginning"
      )
    }),
    "read a stream with a Schema that refuses a chunk": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.execute(App.Does, { instanceId, payload: "append" })
      yield* refused(
        Stream.runCollect(client.readStream(App.OtherLines, instanceId)),
        "PayloadMismatch",
        `chunk of stream "lines"`
      )
    })
  },

  Activities: {
    "an activity fails with an error of its Schema": Effect.fnUntraced(function*(client, instanceId) {
      const error = yield* failure(client.execute(App.Calls, { instanceId, payload: "fail" }))
      assert.deepStrictEqual(error, new App.Declined({ code: 7 }))
    }),
    "an activity throws or dies": (client, instanceId) =>
      fails(client.execute(App.Calls, { instanceId, payload: "throw" }), `activity "Work" died: thrown`),
    "an activity returns a value its Schema refuses": (client, instanceId) =>
      fails(
        client.execute(App.Calls, { instanceId, payload: "nonsense" }),
        `activity "Work" died: result of activity "Work" does not match its schema: Expected string`
      ),
    "an activity fails with an error its Schema refuses": (client, instanceId) =>
      fails(
        client.execute(App.Calls, { instanceId, payload: "fail with nonsense" }),
        `activity "Work" died: error of activity "Work" does not match its schema`
      ),
    "an activity returns more than 4 MiB": (client, instanceId) =>
      fails(
        client.execute(App.Calls, { instanceId, payload: "too large" }),
        `activity "Work" died: result of activity "Work" has 4194305 bytes, the limit is 4194304`
      ),
    "an activity hangs, and has a timeout": Effect.fnUntraced(function*(client, instanceId) {
      const answer = yield* client.execute(App.Does, { instanceId, payload: "time out" })
      assert.strictEqual(answer, "ActivityTimedOut")
      yield* Effect.repeat(client.status(instanceId), { until: () => App.hanging.get(instanceId) === "interrupted" })
    }),
    "an activity hangs, and has none": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Calls, { instanceId, payload: "hang" })
      yield* Effect.repeat(client.status(instanceId), { until: () => App.hanging.get(instanceId) === "running" })
      yield* client.terminate(instanceId, "it hangs")
      yield* cancelled(client.wait(App.Calls, instanceId), "it hangs")
      yield* Effect.repeat(client.status(instanceId), { until: () => App.hanging.get(instanceId) === "interrupted" })
    }),
    "call an activity that no process serves": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Does, { instanceId, payload: "call an unserved activity" })
      yield* refused(client.wait(App.Does, instanceId, { timeout: "300 millis" }), "WaitTimeout")
      assert.strictEqual((yield* client.status(instanceId))._tag, "Running")
      assert.deepStrictEqual(yield* history(instanceId), ["OrchestrationStarted", "ActivityScheduled"])
    }),
    "call an activity with a payload that its Schema refuses": deedFails(
      "call with nonsense",
      `payload of activity "Work" does not match its schema: Expected string`
    ),
    "call an activity with a payload of more than 4 MiB": deedFails(
      "call with too much",
      `payload of activity "Work" has 4194305 bytes, the limit is 4194304`
    ),
    "call an activity whose `limitKey` is empty, or has more than 256 bytes": deedFails(
      "call with a bad key",
      `activity "Work": limitKey is refused: it has 257 bytes`
    ),
    "call an activity with a payload that the handler's Schema refuses": deedBlocks(
      "call as others do",
      "DataUnreadable",
      `payload of activity "Work" does not match its schema: `
    )
  },

  Programs: {
    "a program throws or dies": deedFails("throw", "thrown"),
    "a program returns a value its Schema refuses": deedFails(
      "return nonsense",
      `result of orchestration "Does" does not match its schema: Expected string`
    ),
    "a program returns more than 4 MiB": deedFails(
      "return too much",
      `result of orchestration "Does" has 4194305 bytes, the limit is 4194304`
    ),
    "a program awaits a promise, or anything else that is not durable": deedBlocks(
      "await a promise",
      "NotDurable",
      `orchestration "Does" awaits something that is not durable`,
      "Put it in an activity"
    ),
    "a program never waits and never ends": deedBlocks(
      "loop without waiting",
      "Endless",
      `orchestration "Does" does not come to rest`
    ),
    "change the code of a running instance without a new version": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Edited, { instanceId })
      yield* waiting(instanceId)
      App.edited.add(instanceId)
      yield* client.send(App.Go, instanceId, "go")
      yield* blocked(
        client,
        instanceId,
        "HistoryDiffers",
        `event 2: history has wait for signal "Go", the code asks for activity "Work"`
      )
      // The old code is back, and nothing is lost.
      App.edited.delete(instanceId)
      yield* wakeBlocked(App.Edited)
      yield* client.wait(App.Edited, instanceId)
    }),
    "start a child under an id that begins with `sub::`": deedFails(
      "start a child under a reserved id",
      "instanceId is refused: 'sub::' at the beginning marks ids the runtime gives"
    ),
    "start a child under an id that is taken": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Echo, { instanceId: "taken", payload: "first" })
      yield* client.wait(App.Echo, "taken")
      yield* fails(
        client.execute(App.Does, { instanceId, payload: "start a child under a taken id" }),
        `sub-orchestration instance id 'taken' already exists`
      )
    }),
    "start detached under an id that contains `::sub::`": deedFails(
      "start detached under a reserved id",
      "instanceId is refused: 'sub::' is reserved for child orchestrations"
    ),
    "start detached under an id that is taken": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.start(App.Echo, { instanceId: "taken, too", payload: "first" })
      yield* client.wait(App.Echo, "taken, too")
      yield* client.execute(App.Does, { instanceId, payload: "start detached under a taken id" })
      yield* untilDropped(client, "taken, too")
      assert.strictEqual(yield* client.wait(App.Echo, "taken, too"), "first")
    }),
    "set a value of more than 65,536 bytes": deedFails(
      "set a large value",
      "KV value for key 'note' (65537 bytes) exceeds limit (65536 bytes)"
    ),
    "set more than 150 values": deedFails(
      "set many values",
      "KV key count (151) exceeds limit (150)"
    ),
    "set a value with NUL or half a surrogate pair": Effect.fnUntraced(function*(client, instanceId) {
      yield* client.execute(App.Does, { instanceId, payload: "set odd text" })
      assert.deepStrictEqual(yield* client.read(App.Note, instanceId), Option.some(App.odd))
    }),
    "set a key of more than 2,560 bytes together with the instance's id, or with NUL or half a surrogate pair": Effect
      .fnUntraced(
        function*(client, instanceId) {
          yield* deedFails("set a long key", "key is refused: it has 2561 bytes, the limit is")(client, instanceId)
          yield* deedFails("set an odd key", "key is refused", "NUL")(client, `${instanceId}, odd`)
        }
      ),
    "set a custom status of more than 262,144 bytes": deedFails(
      "set a long status",
      "Custom status size (262145 bytes) exceeds limit (262144 bytes)"
    ),
    "set an attribute with a bad name or value, or more than 20": Effect.fnUntraced(function*(client, instanceId) {
      yield* deedFails("set an odd attribute", "attributes are refused: the text of a cannot be stored", "NUL")(
        client,
        instanceId
      )
      yield* deedFails("set many attributes", "at most 20 attributes, and this one would have 21")(
        client,
        `${instanceId}, many`
      )
    }),
    "append a chunk that its Schema refuses, or with more than `maxChunkBytes`": Effect.fnUntraced(
      function*(client, instanceId) {
        yield* deedFails("append nonsense", `chunk of stream "lines" does not match its schema`)(client, instanceId)
        yield* deedFails("append too much", `a chunk of stream "lines" has 12 bytes, the limit is 10`)(
          client,
          `${instanceId}, large`
        )
      }
    ),
    "set a custom status with NUL or half a surrogate pair": deedFails(
      "set an odd status",
      "custom status is refused: it holds a NUL character"
    )
  }
}

/** Every case once, as a test under the name of its row. */
export const register = (
  test: (name: string, run: Effect.Effect<void, unknown, Client.Client | Services>) => void
): void => {
  for (const cases of Object.values(sections)) {
    for (const [does, run] of Object.entries(cases)) {
      test(does, Effect.flatMap(Client.Client, (client) => run(client, does.replace(/\W+/g, " ").slice(0, 80))))
    }
  }
}
