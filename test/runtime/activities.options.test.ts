import { assert, describe, it } from "@effect/vitest"
import { Activity, RuntimeConfig } from "duroxide-prisma"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

class Declined extends Schema.TaggedError<Declined>()("Declined", { code: Schema.Int }) {}

const schemas = { payload: Schema.Int, success: Schema.String, error: Declined } as const
const Plain = Activity.make("Plain", schemas)

describe("Activity options, as values", () => {
  const cases: ReadonlyArray<readonly [Activity.Options<Declined>, problem: string]> = [
    [{ tag: "" }, "tag is refused: it is empty"],
    [{ tag: "ü".repeat(129) }, "tag is refused: it has 258 bytes, the limit is 256"],
    [{ tag: "a\0b" }, "tag is refused: it holds a NUL character"],
    [{ tag: "duroxide-prisma" }, "tag is refused: it is reserved for activities without a tag"],
    [{ tag: "\ud800" }, "tag is refused: it holds half of a surrogate pair"],
    [{ sessionId: "" }, "sessionId is refused: it is empty"],
    [{ sessionId: "s".repeat(1025) }, "sessionId is refused: it has 1025 bytes, the limit is 1024"],
    [{ timeout: -1 }, "timeout is refused: it is -1 ms, but must be more than 0"],
    [{ timeout: 0 }, "timeout is refused: it is 0 ms, but must be more than 0"],
    [{ totalTimeout: "soon" as Duration.Input }, `totalTimeout is refused: "soon" is not a duration`],
    [
      { retry: {} as Activity.Retry<Declined> },
      "retry is refused: without schedule and times it would retry forever and without a pause"
    ],
    [{ retry: { times: -1 } }, "retry is refused: times is -1, but must be a whole number from 0"],
    [{ retry: { times: 1.5 } }, "retry is refused: times is 1.5, but must be a whole number from 0"]
  ]
  for (const [options, problem] of cases) {
    it(`with: ${problem}`, () => {
      assert.throws(() => Plain.with(options), RangeError, `activity "Plain": ${problem}`)
    })
  }

  it("make: refuses at the definition", () => {
    assert.throws(
      () => Activity.make("Early", { tag: "" }),
      RangeError,
      `activity "Early": tag is refused: it is empty`
    )
  })

  it("with: a tag of 256 bytes, an endless timeout and no retry at all are fine", () => {
    assert.strictEqual(
      Plain.with({ tag: "ü".repeat(128), timeout: Duration.infinity, retry: { times: 0 } }).name,
      "Plain"
    )
  })
})

describe("RuntimeConfig.layer", () => {
  const cases: ReadonlyArray<readonly [RuntimeConfig.Options, problem: string]> = [
    [{ tags: { _tag: "Tags", tags: [] } }, "RuntimeConfig.tags has 0 tags; it must have 1 to 5"],
    [
      { tags: { _tag: "DefaultAnd", tags: ["a", "b", "c", "d", "e", "f"] } },
      "RuntimeConfig.tags has 6 tags; it must have 1 to 5"
    ],
    [{ tags: { _tag: "Tags", tags: ["a", ""] } }, "RuntimeConfig.tags cannot be used: it is empty"],
    [
      { tags: { _tag: "Tags", tags: ["duroxide-prisma"] } },
      "RuntimeConfig.tags cannot be used: it is reserved for activities without a tag"
    ],
    [{ workerId: "" }, "RuntimeConfig.workerId cannot be used: it is empty"],
    [{ workerId: "a\0b" }, "RuntimeConfig.workerId cannot be used: it holds a NUL character"],
    [{ maxSessions: -1 }, "RuntimeConfig.maxSessions is -1; it must be at least 0"],
    [{ sessionLockTimeout: 0 }, "RuntimeConfig.sessionLockTimeout is 0 milliseconds; it must be at least 1"],
    [
      { sessionIdleTimeout: "1 second" },
      "RuntimeConfig.sessionIdleTimeout is 1000 milliseconds; running activities are renewed every 1000 milliseconds"
    ],
    [
      { sessionIdleTimeout: "10 seconds", cancellationCheckInterval: Duration.infinity },
      "RuntimeConfig.sessionIdleTimeout is 10000 milliseconds; running activities are renewed every 15000 milliseconds"
    ],
    [
      { orchestratorLockTimeout: "5 seconds" } as RuntimeConfig.Options,
      "RuntimeConfig.orchestratorLockTimeout is not an option. There are: orchestrationConcurrency, workerConcurrency, "
    ],
    [{ toString: 1 } as unknown as RuntimeConfig.Options, "RuntimeConfig.toString is not an option"],
    ...[
      "orchestrationConcurrency",
      "orchestrationLockTimeout",
      "workerLockTimeout",
      "sessionLockTimeout",
      "sessionIdleTimeout",
      "orphanRetention"
    ].flatMap((key) =>
      [Infinity, Number.MAX_SAFE_INTEGER].map((value): readonly [RuntimeConfig.Options, string] => [
        { [key]: value },
        `RuntimeConfig.${key} ${key === "orchestrationConcurrency" ? `is ${value}; it must be` : "is longer than 100"}`
      ])
    ),
    [{ workerConcurrency: 1.5 }, "RuntimeConfig.workerConcurrency is 1.5; it must be a whole number"],
    [{ pollTimeout: "30 secs" as "30 seconds" }, "RuntimeConfig.pollTimeout is not a duration"],
    [{ cancellationCheckInterval: 0 }, "RuntimeConfig.cancellationCheckInterval is 0 milliseconds"],
    ...["/duroxide", "ftp://shop.example", "https://a:b@shop.example", "https://shop.example/?a", "https://a/#/"].map(
      (dashboardUrl): readonly [RuntimeConfig.Options, string] => [
        { dashboardUrl },
        "RuntimeConfig.dashboardUrl must be an absolute http or https URL without credentials, query and fragment"
      ]
    )
  ]
  for (const [options, problem] of cases) {
    it(`refuses ${JSON.stringify(options)}`, () => {
      assert.throws(() => RuntimeConfig.layer(options), RangeError, problem)
    })
  }

  it.effect("takes five tags, no sessions, and a name", () =>
    Effect.gen(function*() {
      const settings = yield* RuntimeConfig.RuntimeConfig
      assert.deepStrictEqual([settings.maxSessions, settings.workerId], [0, "node-1"])
    }).pipe(
      Effect.provide(RuntimeConfig.layer({
        tags: { _tag: "DefaultAnd", tags: ["a", "b", "c", "d", "e"] },
        maxSessions: 0,
        workerId: "node-1"
      }))
    ))
})
