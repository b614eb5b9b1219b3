/** Times and durations as they are typed into the page. */
import { assert, describe, it } from "@effect/vitest"
import { durationOf, timeOf } from "../../ui/src/parts/times.ts"

const nowMs = Date.parse("2026-11-27T12:00:00Z")

describe("A time", () => {
  it("is now, an age, a date, a time, or the milliseconds of a link", () => {
    for (
      const [text, ms] of [
        ["now", nowMs],
        [" 30s ", nowMs - 30_000],
        ["30m", nowMs - 1_800_000],
        ["2h", nowMs - 7_200_000],
        ["7d", nowMs - 604_800_000],
        ["2026-11-27T08:00Z", Date.parse("2026-11-27T08:00Z")],
        ["2026-11-27T08:00:01.5+02:00", Date.parse("2026-11-27T06:00:01.500Z")],
        ["2026-11-27", Date.parse("2026-11-27T00:00Z")],
        ["2028-02-29", Date.parse("2028-02-29T00:00Z")],
        ["1795800768295", 1795800768295]
      ] as const
    ) assert.strictEqual(timeOf(text, nowMs), ms, text)
  })

  it("is never guessed from another text", () => {
    for (
      const text of [
        "5 months",
        "7 december 2026",
        "1d12h",
        "3",
        "1h30",
        "2 h",
        "1.5h",
        "-2h",
        "2w",
        "12345678901",
        "2026-02-30",
        "2026-13-01",
        "2026-11-27T25:00Z",
        "2026-11-27 08:00",
        "2026-11-27x",
        "",
        "2026"
      ]
    ) assert.isUndefined(timeOf(text, nowMs), text)
  })
})

describe("A duration", () => {
  it("is a number and a unit", () => {
    for (
      const [text, ms] of [
        ["90s", 90_000],
        ["10 min", 600_000],
        ["10m", 600_000],
        ["2h", 7_200_000],
        ["1d", 86_400_000]
      ] as const
    ) assert.strictEqual(durationOf(text), ms, text)
  })

  it("is never guessed from another text", () => {
    for (const text of ["5 months", "1h30", "10", "0s", "1.5h", "2 hours", "10  min", "min", ""]) {
      assert.isUndefined(durationOf(text), text)
    }
  })
})
