/**
 * Timings in words, and counts of occurrences.
 */
import { assert, describe, it } from "@effect/vitest"
import { Schedules } from "duroxide-prisma/schedules"
import { countWithin } from "../../src/schedules/shared/occurrences.ts"
import { timingWords } from "../../src/schedules/shared/timingWords.ts"

const crons: Readonly<Record<string, string>> = {
  "* * * * *": "every minute",
  "*/5 * * * *": "every 5 minutes",
  "0 * * * *": "every hour",
  "30 * * * *": "every hour at minute 30",
  "0 */6 * * *": "every 6 hours",
  "15 */6 * * *": "every 6 hours at minute 15",
  "0 4 * * *": "at 04:00 every day",
  "30 6,18 * * *": "at 06:30 and 18:30 every day",
  "0 9 * * 1-5": "at 09:00 on Monday to Friday",
  "0 9 * * MON": "at 09:00 on Monday",
  "*/10 * * * 0,6": "every 10 minutes on Sunday and Saturday",
  "0 0 1 * *": "at 00:00 on day 1 of the month",
  "0 0 1,15 1,7 *": "at 00:00 on days 1 and 15 of the month in January and July",
  // Those that no short sentence says.
  "5,17 * * * *": "at the times of 5,17 * * * *",
  "0 0 13 * 5": "at the times of 0 0 13 * 5",
  "*/10 * * * * *": "at the times of */10 * * * * *",
  "7 1,2,3,5,8 * * *": "at the times of 7 1,2,3,5,8 * * *"
}

describe("timings in words", () => {
  for (const [expression, words] of Object.entries(crons)) {
    it(`${expression} is "${words}"`, () => assert.strictEqual(timingWords(Schedules.cron(expression)), words))
  }

  it("intervals and dates", () => {
    assert.strictEqual(timingWords(Schedules.every("90 minutes")), "every 1 h 30 min")
    assert.strictEqual(timingWords(Schedules.every("1 day", { offset: "30 minutes" })), "every day, 30 min later")
    assert.strictEqual(timingWords(Schedules.dates(["2026-12-24T18:00"])), "on 1 date")
    assert.strictEqual(timingWords(Schedules.dates(["2026-12-24", "2026-12-25"])), "on 2 dates")
  })
})

describe("occurrences of a range", () => {
  const at = (text: string) => Date.parse(text)

  it("counts both ends, and says when there are more", () => {
    const hourly = Schedules.cron("0 * * * *")
    const day = { fromMs: at("2026-11-01T00:00Z"), toMs: at("2026-11-02T00:00Z") }
    assert.deepStrictEqual(countWithin(hourly, day, 100).occurrences, 25)
    assert.deepInclude(countWithin(hourly, day, 25), { occurrences: 25, isMore: false })
    assert.deepInclude(countWithin(hourly, day, 24), { occurrences: 24, isMore: true })
    assert.deepStrictEqual(
      countWithin(hourly, day, 24).first.map((ms) => new Date(ms).getUTCHours()),
      [0, 1, 2, 3, 4]
    )
    assert.strictEqual(countWithin(Schedules.dates(["2026-12-24"]), day, 100).occurrences, 0)
  })
})
