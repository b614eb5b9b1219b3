/**
 * Starts and requests: what callers may do wrong, and what follows.
 */
import { assert } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as App from "./app.ts"
import { history, refused, waiting } from "./words.ts"
import type { Test } from "./words.ts"

export const starting: { readonly [does: string]: Test } = {
  "start an id that has ended, with `ifExists: \"replaceEnded\"`": Effect.fnUntraced(function*(client, instanceId) {
    yield* client.execute(App.Echo, { instanceId, payload: "first" })
    const again = { instanceId, payload: "second", ifExists: "replaceEnded" } as const
    assert.strictEqual(yield* client.execute(App.Echo, again), "second")
  }),
  "start an id that runs, or has completed, with `ifExists: \"replaceFailed\"`": Effect.fnUntraced(
    function*(client, instanceId) {
      yield* client.start(App.Waits, { instanceId })
      const again = client.start(App.Waits, { instanceId, ifExists: "replaceFailed" })
      yield* refused(again, "InstanceAlreadyExists")
      yield* waiting(instanceId)
      yield* client.send(App.Go, instanceId, "heard")
      yield* client.wait(App.Waits, instanceId)
      yield* refused(again, "InstanceAlreadyExists")
    }
  ),
  "start with a time and a delay": (client, instanceId) =>
    refused(
      client.start(App.Waits, { instanceId, startAt: 0, delay: "1 second" }),
      "InvalidInput",
      "give one of them"
    ),
  "start many, one of them with bad input": Effect.fnUntraced(function*(client, instanceId) {
    const good = { instanceId, payload: "good" }
    const bad = { instanceId: `${instanceId}, bad`, payload: 1 as unknown as string }
    yield* refused(client.startMany(App.Echo, [good, bad]), "PayloadMismatch")
    assert.strictEqual((yield* client.status(instanceId))._tag, "NotFound")
  }),
  "send with `orStart` to an instance that has ended": Effect.fnUntraced(function*(client, instanceId) {
    yield* client.execute(App.Echo, { instanceId, payload: "x" })
    const events = yield* history(instanceId)
    const orStart = { orchestration: App.Waits }
    yield* refused(client.send(App.Go, instanceId, "late", { orStart }), "InstanceAlreadyExists")
    assert.deepStrictEqual(yield* history(instanceId), events)
  })
}

const serving = (client: Client.Client["Service"], instanceId: string) =>
  Effect.andThen(client.start(App.Serves, { instanceId }), waiting(instanceId))

export const requests: { readonly [does: string]: Test } = {
  "ask an unknown id": (client, instanceId) =>
    refused(
      client.request(App.Question, instanceId, "x", { timeout: "300 millis" }),
      "WaitTimeout",
      "there is no instance of this id"
    ),
  "ask an instance that has ended, or ends without an answer": Effect.fnUntraced(function*(client, instanceId) {
    yield* client.start(App.Waits, { instanceId })
    yield* waiting(instanceId)
    const asked = yield* Effect.forkChild(Effect.flip(client.request(App.Question, instanceId, "x")))
    yield* client.send(App.Go, instanceId, "heard")
    yield* client.wait(App.Waits, instanceId)
    assert.strictEqual((yield* Fiber.join(asked))._tag, "InstanceEnded")
    yield* refused(client.request(App.Question, instanceId, "x"), "InstanceEnded")
  }),
  "ask an instance whose program serves no such request": Effect.fnUntraced(function*(client, instanceId) {
    yield* client.start(App.Waits, { instanceId })
    yield* waiting(instanceId)
    yield* refused(
      client.request(App.Question, instanceId, "x", { timeout: "1 second" }),
      "WaitTimeout",
      "has not waited for requests of this name"
    )
  }),
  "ask an instance that is paused": Effect.fnUntraced(function*(client, instanceId) {
    yield* serving(client, instanceId)
    yield* (yield* Admin.Admin).pause({ _tag: "Instance", instanceId })
    const asked = client.request(App.Question, instanceId, "x", { timeout: "300 millis" })
    yield* refused(asked, "WaitTimeout", "it may be paused or blocked, or wait for a slot of its limit")
  }),
  "ask the same twice, with one `requestId`": Effect.fnUntraced(function*(client, instanceId) {
    yield* serving(client, instanceId)
    const ask = client.request(App.Question, instanceId, "count", { requestId: "once" })
    assert.deepStrictEqual(yield* Effect.all([ask, ask], { concurrency: "unbounded" }), ["1", "1"])
    assert.strictEqual(yield* client.request(App.Question, instanceId, "count"), "2")
  }),
  "ask with a payload that its Schema refuses": Effect.fnUntraced(function*(client, instanceId) {
    yield* refused(client.request(App.Question, instanceId, 1 as unknown as string), "PayloadMismatch")
    yield* refused(client.request(App.Question, instanceId, App.tooLarge), "PayloadTooLarge")
  }),
  "ask with a payload that the program's Schema refuses": Effect.fnUntraced(function*(client, instanceId) {
    yield* serving(client, instanceId)
    yield* refused(
      client.request(App.OtherQuestion, instanceId, 4711),
      "RequestFailed",
      `payload of request "Question" does not match its schema`
    )
    assert.strictEqual(yield* client.request(App.Question, instanceId, "count"), "1")
  }),
  "ask, and the handler fails with an error of its Schema": Effect.fnUntraced(function*(client, instanceId) {
    yield* serving(client, instanceId)
    assert.deepStrictEqual(
      yield* Effect.flip(client.request(App.Question, instanceId, "fail")),
      new App.Declined({ code: 7 })
    )
  }),
  "ask, and the handler dies": Effect.fnUntraced(function*(client, instanceId) {
    yield* serving(client, instanceId)
    yield* refused(client.request(App.Question, instanceId, "throw"), "RequestFailed", "its handler died: thrown")
    assert.strictEqual(yield* client.request(App.Question, instanceId, "count"), "1")
  }),
  "ask, and `validate` throws, or refuses with what the Schema refuses": Effect.fnUntraced(
    function*(client, instanceId) {
      yield* serving(client, instanceId)
      const ask = (what: string) => client.request(App.Question, instanceId, what, { timeout: "20 seconds" })
      yield* refused(ask("validate throws"), "RequestFailed", "its validate died: thrown")
      yield* refused(ask("validate is wrong"), "RequestFailed", "does not match its schema")
      assert.strictEqual(yield* ask("count"), "1")
    }
  ),
  "ask, and the answer has more than 65,536 bytes": Effect.fnUntraced(function*(client, instanceId) {
    yield* serving(client, instanceId)
    yield* refused(client.request(App.Question, instanceId, "large"), "RequestFailed", "the limit is 65536")
  }),
  "ask with a `requestId` that is empty, or has NUL or more than 256 bytes": Effect.fnUntraced(
    function*(client, instanceId) {
      for (const requestId of ["", "a\0b", "x".repeat(257)]) {
        yield* refused(client.request(App.Question, instanceId, "x", { requestId }), "InvalidInput", "requestId")
      }
    }
  )
}
