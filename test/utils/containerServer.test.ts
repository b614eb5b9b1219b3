import { assert, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import * as ContainerServer from "./containerServer.ts"

const started = (stop: () => Promise<void>): ContainerServer.Started => ({
  getConnectionUri: () => "postgres://test:test@localhost:1/test",
  stop
})

const make = (engine: ContainerServer.Engine) => {
  const problems: Array<string> = []
  return Effect.map(
    ContainerServer.make(engine, (problem) => problems.push(problem)),
    (url) => ({ url: Option.getOrUndefined(url), problems })
  )
}

it.effect("a container that starts is used, and stopped with the scope", () =>
  Effect.gen(function*() {
    let stopped = 0
    const scope = yield* Scope.make()
    const { problems, url } = yield* make({
      find: async () => "engine",
      start: async () =>
        started(async () => {
          stopped++
        })
    }).pipe(Scope.provide(scope))
    assert.strictEqual(url, "postgres://test:test@localhost:1/test?sslmode=disable")
    assert.deepStrictEqual(problems, [])
    assert.strictEqual(stopped, 0)
    yield* Scope.close(scope, Exit.void)
    assert.strictEqual(stopped, 1)
  }))

it.effect("without an engine: nothing is started, and nothing said", () =>
  Effect.gen(function*() {
    const start = () => assert.fail("no engine")
    assert.deepStrictEqual(
      yield* make({ find: () => Promise.reject(new Error("no engine")), start }),
      { url: undefined, problems: [] }
    )
  }).pipe(Effect.scoped))

it.effect("a pull that fails: says why, and leaves the server to the caller", () =>
  Effect.gen(function*() {
    const refused = () => Promise.reject(new Error("toomanyrequests: You have reached your pull rate limit"))
    assert.deepStrictEqual(
      yield* make({ find: async () => "engine", start: refused }),
      { url: undefined, problems: ["toomanyrequests: You have reached your pull rate limit"] }
    )
  }).pipe(Effect.scoped))

it.effect("a pull that hangs: is left after two minutes", () =>
  Effect.gen(function*() {
    const begun = yield* Deferred.make<void>()
    const start = () => {
      Deferred.doneUnsafe(begun, Exit.void)
      return new Promise<never>(() => {})
    }
    const pulling = yield* Effect.forkChild(make({ find: async () => "engine", start }))
    yield* Deferred.await(begun)
    yield* TestClock.adjust("3 minutes")
    const { problems, url } = yield* Fiber.join(pulling)
    assert.strictEqual(url, undefined)
    assert.lengthOf(problems, 1)
  }).pipe(Effect.scoped))
