import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime } from "duroxide-prisma"
import { Admin, PayloadCodec } from "duroxide-prisma/provider"
import { Completion, External } from "duroxide-prisma/recipes/completions"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Clock from "effect/Clock"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"

class Refused extends Schema.TaggedError<Refused>()("Refused", { by: Schema.String }) {}

const Approve = External.make("Approve", {
  payload: Schema.String,
  success: Schema.Struct({ by: Schema.String, at: Schema.DateFromString }),
  error: Refused,
  expiry: "7 days"
})

const Spend = Orchestration.make("Spend", {
  payload: Schema.String,
  success: Schema.String,
  error: Schema.Union([Refused, Completion.CompletionExpired])
})

const key = (letter: string) => Redacted.make(letter.repeat(32))

const payloadKeys = { keys: { k1: new Uint8Array(32) }, current: "k1" }

const day = Duration.toMillis("1 day")

interface Sent {
  readonly to: string
  readonly token: string
}

const on = <A, E, R>(
  test: (tokens: ReadonlyArray<Sent>) => Effect.Effect<A, E, R>,
  {
    keys = [key("a")],
    sealed = false,
    program = (what: string) => Effect.map(Approve.execute(what), ({ at, by }) => `${by} ${at.getUTCFullYear()}`)
  }: {
    readonly keys?: ReadonlyArray<Redacted.Redacted<string>>
    readonly sealed?: boolean
    readonly program?: (
      what: string
    ) => Effect.Effect<string, Refused | Completion.CompletionExpired, Orchestration.Instance>
  } = {}
) =>
  Effect.suspend(() => {
    const sent: Array<Sent> = []
    const runtime = Runtime.layer({ orchestrations: [Spend], activities: [Approve] }).pipe(
      Layer.provide([
        Spend.toLayer(program),
        Approve.toLayer((to, token) => Effect.sync(() => void sent.push({ to, token })))
      ])
    )
    return test(sent).pipe(
      Effect.provide(
        Completion.layer({ activities: [Approve] }).pipe(
          Layer.provideMerge(TestRuntime.layer(runtime)),
          Layer.provideMerge(Completion.layerKeys(keys)),
          Layer.provideMerge(Logger.layer([])),
          Layer.provide(sealed ? PayloadCodec.layer([PayloadCodec.encryption(payloadKeys)]) : Layer.empty)
        )
      )
    )
  })

const start = Effect.fnUntraced(function*(sent: ReadonlyArray<Sent>) {
  const client = yield* Client.Client
  yield* client.start(Spend, { instanceId: "s/1", payload: "a laptop" })
  yield* TestRuntime.settle
  return sent[0]!.token
})

const wait = Effect.flatMap(Client.Client, (client) => client.wait(Spend, "s/1"))

const result = { by: "Ada", at: new Date("2030-01-01T00:00:00Z") }

const json = { by: "Ada", at: "2030-01-01T00:00:00.000Z" }

const taken = { state: "taken" } as const

describe("an activity that is completed from outside:", () => {
  it.effect("who has the token completes it, after days and a crash; nothing is left", () =>
    on(Effect.fnUntraced(function*(sent) {
      const token = yield* start(sent)
      assert.strictEqual(sent[0]!.to, "a laptop")
      assert.match(token, /^[\w.-]+$/)
      assert.notInclude(Buffer.from(token, "base64url").toString(), "laptop")
      yield* TestRuntime.advance("6 days")
      yield* TestRuntime.crash
      assert.deepStrictEqual(yield* Approve.complete(token, result), taken)
      assert.strictEqual(yield* wait, "Ada 2030")
      assert.lengthOf(sent, 1)
    })))

  it.effect("it fails with a typed error of the activity", () =>
    on(Effect.fnUntraced(function*(sent) {
      const token = yield* start(sent)
      assert.deepStrictEqual(yield* Approve.fail(token, new Refused({ by: "Ada" })), taken)
      assert.deepStrictEqual(yield* Effect.flip(wait), new Refused({ by: "Ada" }))
    })))

  it.effect("the first completion counts: the same one again is answered alike, another one is refused", () =>
    on(Effect.fnUntraced(function*(sent) {
      const token = yield* start(sent)
      const { complete, fail, status } = yield* Completion.Completion
      assert.deepStrictEqual(yield* complete(token, json), taken)
      assert.strictEqual(yield* wait, "Ada 2030")
      assert.deepStrictEqual(yield* complete(token, json), taken)
      assert.deepStrictEqual(yield* complete(token, { at: json.at, by: json.by }), taken)
      const others = [complete(token, { ...json, by: "Ben" }), fail(token, { _tag: "Refused", by: "Ben" })]
      for (const other of others) {
        assert.strictEqual((yield* Effect.flip(other))._tag, "AlreadyCompleted")
      }
      assert.strictEqual((yield* status(token)).state, "completed")
      assert.lengthOf(
        (yield* TestRuntime.history("s/1")).filter(({ _tag }) => _tag === "ExternalEventPersistent"),
        1
      )
    })))

  it.effect("it expires: the program fails with CompletionExpired, and the token is refused", () =>
    on(Effect.fnUntraced(function*(sent) {
      const token = yield* start(sent)
      const error = yield* Effect.flip(wait)
      assert.instanceOf(error, Completion.CompletionExpired)
      const refusal = yield* Effect.flip(Approve.complete(token, result))
      assert.instanceOf(refusal, Completion.CompletionExpired)
    })))

  it.effect("a heartbeat postpones the expiry, and explain shows what it said", () =>
    on(Effect.fnUntraced(function*(sent) {
      const token = yield* start(sent)
      const { heartbeat, status } = yield* Completion.Completion
      yield* TestRuntime.advance("5 days")
      const { expiresAtMs } = yield* heartbeat(token, { step: 2 })
      assert.strictEqual(expiresAtMs, (yield* Clock.currentTimeMillis) + 7 * day)
      yield* TestRuntime.advance("6 days")
      const admin = yield* Admin.Admin
      const { cause, sentence } = yield* admin.explain("s/1")
      assert.strictEqual(cause._tag, "Completion")
      assert.include(sentence, "waits for a completion of activity Approve from outside")
      assert.include(sentence, "the last heartbeat came 6 d ago")
      assert.deepInclude(yield* status(token), { state: "open", expiresAtMs })
      assert.deepStrictEqual(yield* Approve.complete(token, result), taken)
      assert.strictEqual(yield* wait, "Ada 2030")
    })))

  it.effect("explain says when an encrypted call expires", () =>
    on((sent) =>
      Effect.gen(function*() {
        const token = yield* start(sent)
        const { heartbeat } = yield* Completion.Completion
        yield* TestRuntime.advance("6 days")
        const { expiresAtMs } = yield* heartbeat(token, { step: 2 })
        yield* TestRuntime.settle
        const { cause } = yield* (yield* Admin.Admin).explain("s/1")
        assert(cause._tag === "Completion")
        assert.deepStrictEqual([cause.untilMs, cause.heartbeat], [expiresAtMs, null])
      }), { sealed: true }))

  it.effect("a heartbeat and a completion behind it are both received", () =>
    on(Effect.fnUntraced(function*(sent) {
      const token = yield* start(sent)
      const { complete, heartbeat } = yield* Completion.Completion
      yield* Effect.all([heartbeat(token), heartbeat(token), complete(token, json)], { concurrency: "unbounded" })
      assert.strictEqual(yield* wait, "Ada 2030")
    })))

  it.effect("a wrong or changed token, or one of a key that is no longer known, is not valid", () =>
    on(Effect.fnUntraced(function*(sent) {
      const token = yield* start(sent)
      const { complete, heartbeat, status } = yield* Completion.Completion
      const [version, call, signature] = token.split(".") as [string, string, string]
      const changed = Buffer.from(
        JSON.stringify(["other", ...JSON.parse(Buffer.from(call, "base64url").toString()).slice(1)])
      ).toString("base64url")
      for (
        const wrong of [
          "",
          "x",
          `${version}.${changed}.${signature}`,
          `${version}.${call}.${"A".repeat(43)}`,
          `${token}A`
        ]
      ) {
        for (const refused of [complete(wrong, json), heartbeat(wrong), status(wrong)]) {
          assert.strictEqual(
            (yield* Effect.flip<unknown, { readonly _tag: string }, never>(refused))._tag,
            "TokenInvalid"
          )
        }
      }
      const withKeys = (keys: ReadonlyArray<Redacted.Redacted<string>>) =>
        Effect.flatMap(Completion.Completion, ({ status }) => status(token)).pipe(
          Effect.provide(Layer.provide(Completion.layer(), Completion.layerKeys(keys)))
        )
      assert.strictEqual((yield* Effect.flip(withKeys([key("b")])))._tag, "TokenInvalid")
      // The new key stands in front while tokens of the old one are out.
      assert.strictEqual((yield* withKeys([key("b"), key("a")])).state, "open")
    })))

  it.effect("what its Schema refuses, and details that are too long, are refused", () =>
    on(Effect.fnUntraced(function*(sent) {
      const token = yield* start(sent)
      const { complete, fail, heartbeat } = yield* Completion.Completion
      for (const refused of [complete(token, { by: 1 }), fail(token, "no"), heartbeat(token, "x".repeat(2_000))]) {
        const { _tag } = yield* Effect.flip<unknown, { readonly _tag: string }, never>(refused)
        assert.strictEqual(_tag, "PayloadMismatch")
      }
      assert.deepStrictEqual(yield* complete(token, json), taken)
    })))

  it.effect("after the program has given it up, or its instance has ended, nothing waits for it", () =>
    on(
      Effect.fnUntraced(function*(sent) {
        const token = yield* start(sent)
        yield* TestRuntime.advance("2 days")
        assert.strictEqual((yield* Effect.flip(Approve.complete(token, result)))._tag, "NotAwaited")
        assert.strictEqual(yield* wait, "given up")
        assert.strictEqual((yield* Effect.flip(Approve.complete(token, result)))._tag, "NotAwaited")
      }),
      {
        program: (what) =>
          Approve.execute(what).pipe(
            Effect.timeoutOption("1 day"),
            Effect.tap(() => Effect.sleep("3 days")),
            Effect.map(Option.match({ onNone: () => "given up", onSome: ({ by }) => by }))
          )
      }
    ))

  it.effect("an instance that was deleted and started again has other calls", () =>
    on(Effect.fnUntraced(function*(sent) {
      const token = yield* start(sent)
      const client = yield* Client.Client
      const admin = yield* Admin.Admin
      yield* client.terminate("s/1", "a mistake")
      yield* admin.deleteInstance("s/1")
      yield* TestRuntime.advance("1 second")
      yield* client.start(Spend, { instanceId: "s/1", payload: "a laptop" })
      assert.lengthOf(sent, 2)
      assert.strictEqual((yield* Effect.flip(Approve.complete(token, result)))._tag, "NotAwaited")
      assert.deepStrictEqual(yield* Approve.complete(sent[1]!.token, result), taken)
    })))

  it.effect("two calls at once have tokens of their own", () =>
    on(
      Effect.fnUntraced(function*(sent) {
        yield* start(sent)
        const tokenOf = (to: string) => sent.find((one) => one.to === to)!.token
        assert.deepStrictEqual(yield* Approve.complete(tokenOf("two"), { ...result, by: "Two" }), taken)
        assert.deepStrictEqual(yield* Approve.complete(tokenOf("one"), { ...result, by: "One" }), taken)
        assert.strictEqual(yield* wait, "One Two")
      }),
      {
        program: () =>
          Effect.map(
            Effect.all([Approve.execute("one"), Approve.execute("two")], { concurrency: "unbounded" }),
            (all) => all.map(({ by }) => by).join(" ")
          )
      }
    ))
})

it("bad options throw", () => {
  for (const expiry of [0, -1, "200000 days", Infinity] as const) {
    assert.throws(() => External.make("Approve", { expiry }), RangeError)
  }
  assert.throws(() => Completion.layerKeys([]), RangeError)
  assert.throws(() => Completion.layerKeys([Redacted.make("short")]), RangeError)
})

it.effect("bad keys in the environment are an error of configuration that names the variable, not the key", () =>
  Effect.gen(function*() {
    const env = { DUROXIDE_COMPLETION_KEYS: `${"k".repeat(32)},secret` }
    const error = yield* Effect.flip(
      Layer.build(Completion.layerKeysConfig).pipe(
        Effect.provide(ConfigProvider.layer(ConfigProvider.fromEnv({ env })))
      )
    )
    assert.strictEqual(error._tag, "ConfigError")
    assert.include(error.message, "DUROXIDE_COMPLETION_KEYS")
    assert.notInclude(error.message, "secret")
  }).pipe(Effect.scoped))
