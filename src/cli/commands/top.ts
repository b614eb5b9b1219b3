import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { durationOf } from "../internal/durations.ts"
import { misused } from "../internal/failure.ts"
import { Process } from "../internal/io.ts"
import { Output } from "../internal/Output.ts"
import * as Screen from "../internal/screen.ts"
import { Settings } from "../internal/settings.ts"
import type { Target } from "../internal/settings.ts"
import * as Store from "../internal/store.ts"
import { shortened } from "../internal/table.ts"
import * as Top from "../internal/top.ts"

export const top = Command.make("top", {
  interval: Flag.String("interval").pipe(
    Flag.withMetavar("<duration>"),
    Flag.withDescription("Time between two updates, or with --once the time it looks back. Defaults to \"2 seconds\""),
    Flag.optional
  ),
  once: Flag.Boolean("once").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Print it once, for scripts: what happened in the last interval"),
    Flag.withDefault(false)
  )
}, (flags) => Effect.provide(run(flags), Store.layer)).pipe(
  Command.withShortDescription("Watch what happens"),
  Command.withDescription(
    "Watch what happens: instances by status, how many start and end, what waits and for how long, which processes are " +
      "alive. Drawn again every two seconds, until you press q. It reads no more of a large store than of a small one."
  ),
  Command.withExamples([
    { command: "duroxide-prisma top" },
    { command: "duroxide-prisma top --once --interval \"1 minute\" --json", description: "For programs" }
  ])
)

// internal

const shortest = Duration.millis(100)

const run = Effect.fnUntraced(function*({ interval, once }: {
  readonly interval: Option.Option<string>
  readonly once: boolean
}) {
  const given = (yield* durationOf("interval", interval)) ?? Duration.seconds(2)
  if (Duration.isLessThan(given, shortest)) {
    return yield* misused("--interval: it is at least 100 milliseconds")
  }
  const { answer, columns, isJson, isTerminal, style } = yield* Output
  const { stdin } = yield* Process
  const target = yield* (yield* Settings).target
  const first = yield* Top.read(target, { agoMs: Duration.toMillis(given) })
  if (once) {
    return yield* answer({
      json: Top.toJson(first),
      text: Top.shown(first, { style, columns, rows: Number.POSITIVE_INFINITY })
    })
  }
  if (isJson || !isTerminal || !stdin.isTerminal) {
    return yield* misused("it draws on a terminal: give --once to print it")
  }
  yield* watch(target, first, given)
})

const watch = Effect.fnUntraced(function*(target: Target, first: Top.Report, interval: Duration.Duration) {
  const { style } = yield* Output
  const { stdout } = yield* Process
  const screen = yield* Screen.open
  let last = first
  const draw = (problem?: string) =>
    Effect.suspend(() => {
      const columns = stdout.columns || 80
      const title = `every ${Duration.format(interval)}`
      return screen.draw([
        style.dim(title) +
        (problem === undefined ? "" : `  ${style.red(shortened(problem, columns - title.length - 2))}`),
        ...Top.shown(last, { style, columns, rows: Screen.rowsOf(stdout) - 2 }),
        style.dim("q quits")
      ])
    })
  yield* draw()
  yield* Effect.raceFirst(
    screen.quit,
    Effect.forever(
      Effect.sleep(interval).pipe(
        Effect.andThen(Effect.suspend(() => Top.read(target, { atMs: last.nowMs }))),
        Effect.matchEffect({
          onSuccess: (report) => {
            last = report
            return draw()
          },
          // It draws what it knew, until the store answers again.
          onFailure: (error) => error.isRetryable ? draw(error.reason.message) : Effect.fail(error)
        })
      )
    )
  )
}, Effect.scoped)
