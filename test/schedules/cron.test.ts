import { assert, describe, it } from "@effect/vitest"
import { Schedules } from "duroxide-prisma/schedules"
import * as Result from "effect/Result"
import * as plans from "../../src/schedules/internal/plan.ts"
import { nextOf, occurrencesOf } from "../../src/schedules/internal/timing.ts"

const at = (text: string) => Date.parse(text)

const catchUps = {
  last: { _tag: "Last" },
  all: { _tag: "Within", ms: 400 * 86_400_000 },
  none: { _tag: "None" }
} as const

type CatchUp = keyof typeof catchUps

const policies = ["last", "all", "none"] as const

const shown = (ms: number) => new Date(ms).toISOString().replace(".000Z", "Z")

const cron = (expression: string, timeZone = "UTC") =>
  Result.getOrThrow(occurrencesOf(Schedules.cron(expression, { timeZone })))

const planOf = (expression: string, catchUp: CatchUp, firedUntilMs: number, nowMs: number, timeZone?: string) =>
  plans.make(
    { catchUp: catchUps[catchUp], jitterMs: 0, overlap: "allow" },
    cron(expression, timeZone),
    { name: "s", nowMs, firedUntilMs, isPaused: false, queued: null, requests: [], runCount: 0, isRunning: false },
    { most: 10_000, refused: new Map() }
  )

/** What starts of the occurrences after a time, up to another. */
const due = (expression: string, catchUp: CatchUp, firedUntil: string, until: string, timeZone?: string) =>
  planOf(expression, catchUp, at(firedUntil), at(until), timeZone).runs
    .filter(({ outcome }) => outcome === "Started")
    .map(({ occurrenceMs }) => shown(occurrenceMs))

describe("the occurrences of a cron expression that are due:", () => {
  it("an instant fires at its time and not before, nor twice, by every policy", () => {
    for (const policy of policies) {
      assert.deepStrictEqual(due("0 * * * *", policy, "2026-01-01T08:00:00Z", "2026-01-01T08:59:59.999Z"), [])
      assert.deepStrictEqual(due("0 * * * *", policy, "2026-01-01T08:00:00Z", "2026-01-01T09:00:00Z"), [
        "2026-01-01T09:00:00Z"
      ])
      assert.deepStrictEqual(due("0 * * * *", policy, "2026-01-01T09:00:00Z", "2026-01-01T09:00:00.001Z"), [])
    }
  })

  it("instants that were missed: the last one, all, or none", () => {
    const missed = (policy: CatchUp) => due("0 * * * *", policy, "2026-01-01T08:30:00Z", "2026-01-01T11:30:00Z")
    assert.deepStrictEqual(missed("last"), ["2026-01-01T11:00:00Z"])
    assert.deepStrictEqual(missed("all"), ["2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"])
    assert.deepStrictEqual(missed("none"), [])
  })

  it("with instants that were missed, the present one fires by every policy", () => {
    const back = (policy: CatchUp) => due("0 * * * *", policy, "2026-01-01T08:30:00Z", "2026-01-01T11:00:30Z")
    assert.deepStrictEqual(back("last"), ["2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"])
    assert.strictEqual(back("all").length, 3)
    assert.deepStrictEqual(back("none"), ["2026-01-01T11:00:00Z"])
  })

  it("instants of the last minute all fire, by every policy", () => {
    for (const policy of policies) {
      assert.deepStrictEqual(due("*/5 * * * * *", policy, "2026-01-01T08:00:00Z", "2026-01-01T08:00:22Z"), [
        "2026-01-01T08:00:05Z",
        "2026-01-01T08:00:10Z",
        "2026-01-01T08:00:15Z",
        "2026-01-01T08:00:20Z"
      ])
    }
  })

  it("an instant is on time until it is more than a minute old", () => {
    const beside = (policy: CatchUp, until: string) => due("*/30 * * * * *", policy, "2026-01-01T07:50:00Z", until)
    const onTime = ["2026-01-01T08:00:00Z", "2026-01-01T08:00:30Z", "2026-01-01T08:01:00Z"]
    assert.deepStrictEqual(beside("none", "2026-01-01T08:01:00Z"), onTime)
    assert.deepStrictEqual(beside("last", "2026-01-01T08:01:00Z"), ["2026-01-01T07:59:30Z", ...onTime])
    assert.deepStrictEqual(beside("none", "2026-01-01T08:01:00.001Z"), onTime.slice(1))
    assert.deepStrictEqual(beside("last", "2026-01-01T08:01:00.001Z"), onTime)
  })

  it("a year without a scheduler is looked at at once", () => {
    const year = due("* * * * * *", "last", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00.500Z")
    assert.strictEqual(year[0], "2025-12-31T23:59:00Z", "the last one that was missed")
    assert.strictEqual(year.length, 61)
  })

  it("daylight saving: the newest that was missed is an instant that all policies know", () => {
    for (const night of ["2026-03-29", "2026-10-25"]) {
      for (const minutes of ["30 2", "*/20 *"]) {
        const from = `${night.slice(0, 8)}${Number(night.slice(8)) - 1}T12:00:00Z`
        for (let hour = 0; hour < 6; hour++) {
          const until = `${night}T0${hour}:59:00Z`
          const find = (policy: CatchUp) => due(`${minutes} * * *`, policy, from, until, "Europe/Berlin")
          assert.deepStrictEqual(find("last"), find("all").slice(-1), until)
        }
      }
    }
  })

  it("daylight saving: the last one before a time is one of those that follow an earlier time", () => {
    const nights = [
      ["Europe/Berlin", "2026-03-29T00:00:00Z"],
      ["Europe/Berlin", "2026-10-25T00:00:00Z"],
      ["Australia/Lord_Howe", "2026-10-03T14:00:00Z"],
      ["Australia/Lord_Howe", "2026-04-04T14:00:00Z"],
      ["Antarctica/Troll", "2026-03-29T00:00:00Z"],
      ["Africa/Cairo", "2026-04-23T21:00:00Z"]
    ] as const
    const times = ["30 2", "10,40 2", "*/15 2", "5,20,40 2", "15 0,1,2,3", "*/20 0-3", "0,30 0", "*/20 *", "0 */2"]
    for (const [zone, night] of nights) {
      for (const time of times) {
        const all = nextOf(cron(`${time} * * *`, zone), at(night) - 36 * 3_600_000, 200)
        for (let ms = at(night); ms < at(night) + 6 * 3_600_000; ms += 7 * 60_000) {
          const label = `${time}, ${zone}, ${shown(ms)}`
          assert.strictEqual(cron(`${time} * * *`, zone).atOrBefore(ms), all.findLast((one) => one <= ms), label)
        }
      }
    }
  })

  it("daylight saving: of several times that the clocks leave out, the one that is due is also the newest", () => {
    const { runs } = planOf(
      "10,40 2 * * *",
      "last",
      at("2026-03-28T12:00:00Z"),
      at("2026-03-29T06:00:00Z"),
      "Europe/Berlin"
    )
    assert.deepStrictEqual(runs.map(({ occurrenceMs, outcome }) => [outcome, shown(occurrenceMs)]), [
      ["Started", "2026-03-29T01:10:00Z"]
    ])
  })

  it("daylight saving: the hour of the wall clock stays, each day once", () => {
    const days = (expression: string, from: string, until: string) =>
      due(expression, "all", from, until, "Europe/Berlin")
    assert.deepStrictEqual(days("0 4 * * *", "2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z"), [
      "2026-03-28T03:00:00Z",
      "2026-03-29T02:00:00Z",
      "2026-03-30T02:00:00Z"
    ])
    // 2:30 does not exist in the first night, and comes twice in the second.
    assert.deepStrictEqual(days("30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z"), [
      "2026-03-29T01:30:00Z",
      "2026-03-30T00:30:00Z"
    ])
    // Of several, the first one counts.
    assert.deepStrictEqual(days("10,40 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z"), [
      "2026-03-29T01:10:00Z"
    ])
    // Where the clocks go from 2:00 to 2:30.
    assert.deepStrictEqual(
      due("10 2 * * *", "all", "2026-10-03T00:00:00Z", "2026-10-04T00:00:00Z", "Australia/Lord_Howe"),
      ["2026-10-03T15:40:00Z"]
    )
    assert.deepStrictEqual(days("30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"), [
      "2026-10-25T00:30:00Z",
      "2026-10-26T01:30:00Z"
    ])
  })

  it("daylight saving: intervals continue through the hour that comes twice, and times of the day come once", () => {
    const every = (minutes: number, from: string, until: string) => {
      const instants: Array<string> = []
      for (let ms = at(from); ms <= at(until); ms += minutes * 60_000) {
        instants.push(new Date(ms).toISOString().slice(11, 16))
      }
      return instants
    }
    // From midnight UTC to 3:00 UTC, which is 2:00 to 4:00 in autumn, and 1:00 to 5:00 in spring.
    const nights: ReadonlyArray<readonly [string, ReadonlyArray<string>, ReadonlyArray<string>]> = [
      [
        "*/5 * * * *",
        every(5, "2026-01-01T00:00Z", "2026-01-01T03:00Z"),
        every(5, "2026-01-01T00:00Z", "2026-01-01T03:00Z")
      ],
      ["0 * * * *", ["00:00", "01:00", "02:00", "03:00"], ["00:00", "01:00", "02:00", "03:00"]],
      ["0 30 * * * *", ["00:30", "01:30", "02:30"], ["00:30", "01:30", "02:30"]],
      ["0 */2 * * *", ["00:00", "01:00", "03:00"], ["01:00", "02:00"]],
      ["0 */3 * * *", ["02:00"], ["01:00"]],
      ["30 2 * * *", ["00:30"], ["01:30"]],
      ["*/30 2-3 * * *", ["00:00", "00:30", "02:00", "02:30"], ["01:00", "01:30"]],
      ["15 1-23/2 * * *", ["02:15"], ["00:15", "01:15"]],
      ["0 2,3 * * 0", ["00:00", "02:00"], ["01:00"]]
    ]
    for (const [expression, autumn, spring] of nights) {
      for (const [day, expected] of [["2026-10-25", autumn], ["2026-03-29", spring]] as const) {
        const before = `${day.slice(0, 8)}${Number(day.slice(8)) - 1}T23:59:59Z`
        const all = due(expression, "all", before, `${day}T03:00:00Z`, "Europe/Berlin")
        assert.deepStrictEqual(all.map((instant) => instant.slice(11, 16)), expected, `${day}: ${expression}`)
        // However often the trigger runs, each instant fires once.
        const each: Array<string> = []
        for (let ms = at(before); ms < at(`${day}T03:00:00Z`); ms += 600_000) {
          const [from, until] = [new Date(ms).toISOString(), new Date(ms + 600_000).toISOString()]
          each.push(...due(expression, "all", from, until, "Europe/Berlin"))
        }
        assert.deepStrictEqual(each.filter((instant) => at(instant) <= at(`${day}T03:00:00Z`)), all)
      }
    }
  })

  it("daylight saving: an instant fires by every policy if the last run was in the same night", () => {
    for (const policy of policies) {
      const berlin = (expression: string, from: string, until: string) =>
        due(expression, policy, from, until, "Europe/Berlin")
      assert.deepStrictEqual(berlin("30 2 * * *", "2026-03-29T01:10:00Z", "2026-03-29T01:30:10Z"), [
        "2026-03-29T01:30:00Z"
      ])
      assert.deepStrictEqual(berlin("30 2 * * *", "2026-10-25T01:10:00Z", "2026-10-25T01:30:10Z"), [])
    }
  })

  it("what is missed is one run, from the first to the last", () => {
    const { runs } = planOf("0 * * * *", "none", at("2026-01-01T08:30:00Z"), at("2026-01-02T08:30:00Z"))
    assert.deepStrictEqual(
      runs.map(({ missedSinceMs, occurrenceMs, outcome }) => [outcome, shown(missedSinceMs!), shown(occurrenceMs)]),
      [["Missed", "2026-01-01T09:00:00Z", "2026-01-02T08:00:00Z"]]
    )
  })
})

describe("timings:", () => {
  const next = (timing: Schedules.Timing, after: string, most = 3) =>
    nextOf(Result.getOrThrow(occurrencesOf(timing)), at(after), most).map(shown)

  it("an interval counts from midnight UTC of 1970, whenever it is asked", () => {
    assert.deepStrictEqual(next(Schedules.every("20 minutes"), "2026-01-01T00:00:00Z"), [
      "2026-01-01T00:20:00Z",
      "2026-01-01T00:40:00Z",
      "2026-01-01T01:00:00Z"
    ])
    assert.deepStrictEqual(next(Schedules.every("20 minutes", { offset: "5 minutes" }), "2026-01-01T00:06:00Z", 1), [
      "2026-01-01T00:25:00Z"
    ])
  })

  it("dates: instants, or times of a zone, in order and once", () => {
    const timing = Schedules.dates(
      ["2026-12-24T18:00", new Date("2026-06-01T00:00:00Z"), "2026-06-01T02:00:00+02:00", "2026-07-01"],
      { timeZone: "Europe/Berlin" }
    )
    assert.deepStrictEqual(next(timing, "2026-01-01T00:00:00Z", 9), [
      "2026-06-01T00:00:00Z",
      "2026-06-30T22:00:00Z",
      "2026-12-24T17:00:00Z"
    ])
    assert.deepStrictEqual(next(timing, "2026-12-24T17:00:00Z", 9), [])
  })

  it("what cannot work throws a RangeError", () => {
    for (
      const make of [
        () => Schedules.cron("every day"),
        () => Schedules.cron("0 0 30 2 *"),
        () => Schedules.cron("* * * * *", { timeZone: "Europe/Atlantis" }),
        () => Schedules.every("999 millis"),
        () => Schedules.every("1 hour", { offset: "1 hour" }),
        () => Schedules.every(Number.NaN),
        () => Schedules.dates([]),
        () => Schedules.dates(["tomorrow"]),
        () => Schedules.dates(["2026-02-30T10:00"]),
        // The clocks leave this time out.
        () => Schedules.dates(["2026-03-29T02:30"], { timeZone: "Europe/Berlin" }),
        () => Schedules.dates(["2026-03-29T01:30"], { timeZone: "Europe/Atlantis" })
      ]
    ) {
      assert.throws(make, RangeError, "is refused")
    }
    assert.doesNotThrow(() => Schedules.cron("0 0 29 2 *", { timeZone: "Europe/Berlin" }))
  })

  it("refuses a stored interval that would never end", () => {
    for (const everyMs of [0, -1000]) {
      assert.deepStrictEqual(
        occurrencesOf({ _tag: "Interval", everyMs, offsetMs: 0 }),
        Result.fail(`an interval of ${everyMs} ms`)
      )
    }
  })
})
