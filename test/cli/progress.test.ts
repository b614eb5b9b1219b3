/**
 * How far a long command is, on standard error.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import type { Io } from "../../src/cli/internal/io.ts"
import * as Output from "../../src/cli/internal/Output.ts"
import * as Progress from "../../src/cli/internal/Progress.ts"

const opened = (options: { readonly columns?: number; readonly json?: boolean }) =>
  Effect.gen(function*() {
    const printed: Array<string> = []
    const stream = {
      write: (text: string) => void printed.push(text),
      written: () => Promise.resolve(),
      isTerminal: options.columns !== undefined,
      columns: options.columns,
      rows: undefined
    }
    const output = Output.make({
      args: options.json === true ? ["--json"] : [],
      env: {},
      folder: "",
      stdin: {} as Io["stdin"],
      stdout: stream,
      stderr: stream
    })
    const progress = yield* Effect.provideService(Progress.make, Output.Output, output)
    return { printed, output, report: (n: number) => progress.report(`${n} of 9`, { done: n }) }
  })

it.effect("a file gets a line every 10 seconds, and none from a command that ends before", () =>
  Effect.gen(function*() {
    const { printed, report } = yield* opened({})
    for (let n = 1; n <= 9; n++) {
      yield* report(n)
      yield* TestClock.adjust("4 seconds")
    }
    assert.deepStrictEqual(printed, ["4 of 9\n", "7 of 9\n"])
  }))

it.effect("--json makes them objects", () =>
  Effect.gen(function*() {
    const { printed, report } = yield* opened({ json: true, columns: 80 })
    yield* TestClock.adjust("10 seconds")
    yield* report(1)
    assert.deepStrictEqual(printed, ["{\"progress\":{\"done\":1}}\n"])
  }))

it.effect("a terminal gets one line, rewritten ten times a second at most, and erased before anything else", () =>
  Effect.gen(function*() {
    const { output, printed, report } = yield* opened({ columns: 80 })
    for (let n = 1; n <= 9; n++) {
      yield* report(n)
      yield* TestClock.adjust("50 millis")
    }
    const erase = "\r\u001b[2K"
    assert.deepStrictEqual(printed.splice(0), [1, 3, 5, 7, 9].map((n) => `${erase}${n} of 9`))
    yield* output.note("error: no", {})
    yield* output.answer({ json: [], text: ["done"] })
    assert.deepStrictEqual(printed, [erase, "error: no\n", "done\n"])
  }))

it.effect("a line is cut to the width of the terminal, which could not take it back otherwise", () =>
  Effect.gen(function*() {
    const { output, printed } = yield* opened({ columns: 20 })
    yield* output.rewrite("x".repeat(50))
    assert.strictEqual(printed.join("").replace("\r\u001b[2K", ""), "x".repeat(19))
  }))
