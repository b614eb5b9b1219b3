/**
 * The scheduler process: calls the dispatcher at the instants of cron expressions.
 *
 * It sends the time, not the instant: the dispatcher knows which instants up to it have not fired. So a call that was
 * lost, or a time without a scheduler, is made up for by the next call.
 */
import * as Clock from "effect/Clock"
import * as Cron from "effect/Cron"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { InBackground } from "../../model/shared/inBackground.ts"
import { ours } from "../../model/shared/logging.ts"
import * as trouble from "../../model/shared/trouble.ts"

export interface Options {
  readonly url: string
  readonly token: string
  readonly crons: ReadonlyArray<{ readonly name: string; readonly schedule: Cron.Cron }>
  readonly fetch?: typeof globalThis.fetch | undefined
}

/** Until the scope is closed. */
export const make = (options: Options): Effect.Effect<void, never, Scope.Scope> =>
  Effect.forEach(
    options.crons,
    (one) => Effect.forkScoped(Effect.provideService(keepCalling(options, one), InBackground, true)),
    { discard: true }
  )

// internal

const firstPauseMs = 1000
const longestPauseMs = 60_000

const requestTimeout = "30 seconds"

/** The clock may be set meanwhile, and timers of Node have 31 bits. */
const longestSleepMs = 3_600_000

const keepCalling = Effect.fnUntraced(function*(
  options: Options,
  { name, schedule }: Options["crons"][number]
): Effect.fn.Return<never> {
  const clock = yield* Clock.Clock
  const dispatcher = trouble.make(clock)
  const log = (line: Effect.Effect<void>, annotations: Record<string, unknown>) =>
    line.pipe(
      ours({ trigger: name, ...annotations })
    )

  /** Until the dispatcher has fired all that is due. Returns the time up to which it has. */
  const call = Effect.gen(function*() {
    while (true) {
      const untilMs = yield* Clock.currentTimeMillis
      const answer = yield* Effect.result(post(options, name, new Date(untilMs)))
      if (answer._tag === "Success") {
        const ended = dispatcher.ended()
        if (ended !== undefined) {
          yield* log(Effect.logInfo("Scheduler: the dispatcher answers again"), { duration_ms: ended.lastedMs })
        }
        if (answer.success.hasMore) continue
        return untilMs
      }
      const failures = dispatcher.failed()
      if (failures === 0) {
        yield* log(Effect.logWarning("Scheduler: the dispatcher did not fire a trigger; the call is repeated"), {
          error: answer.failure
        })
      }
      yield* Effect.sleep(trouble.growingMs(firstPauseMs, longestPauseMs, failures))
    }
  })

  return yield* Effect.forever(Effect.gen(function*() {
    const firedUntilMs = yield* call
    yield* sleepUntil(Cron.next(schedule, new Date(firedUntilMs)).getTime())
  }))
})

const sleepUntil = (ms: number): Effect.Effect<void> =>
  Effect.flatMap(Clock.currentTimeMillis, (nowMs) =>
    ms <= nowMs
      ? Effect.void
      : Effect.andThen(Effect.sleep(Math.min(ms - nowMs, longestSleepMs)), sleepUntil(ms)))

/** Fails with a text for the log. */
const post = (
  { fetch = globalThis.fetch, token, url }: Options,
  name: string,
  until: Date
): Effect.Effect<{ readonly hasMore: boolean }, string> =>
  Effect.tryPromise({
    try: async (signal) => {
      const response = await fetch(`${url.replace(/\/+$/, "")}/cron/${name}`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({ until: until.toISOString() }),
        signal
      })
      const text = await response.text()
      return response.ok
        ? { hasMore: (JSON.parse(text) as { readonly hasMore?: unknown }).hasMore === true }
        : `the dispatcher answers with status ${response.status}`
    },
    // The cause of a failed fetch names host and port.
    catch: (thrown) => thrown instanceof Error ? `${thrown.message}${causeOf(thrown)}` : "the request failed"
  }).pipe(
    Effect.flatMap((answer) => typeof answer === "string" ? Effect.fail(answer) : Effect.succeed(answer)),
    Effect.timeoutOrElse({
      duration: requestTimeout,
      orElse: () => Effect.fail(`the dispatcher did not answer within ${requestTimeout}`)
    })
  )

const causeOf = ({ cause }: Error) => cause instanceof Error ? `: ${cause.message}` : ""
