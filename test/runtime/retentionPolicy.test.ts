import { assert, describe, it } from "@effect/vitest"
import { Retention } from "duroxide-prisma"

describe("Retention.layer", () => {
  for (
    const [what, options] of [
      ["NaN", { completed: NaN }],
      ["an unknown unit", { failed: { day: 30 } as unknown as { days: number } }],
      ["an unknown unit beside a known one", { completed: { day: 30, minutes: 0 } as { minutes: number } }],
      ["a misspelt text", { cancelled: "30 dayz" as "30 days" }],
      ["a negative duration", { completed: -1 }],
      ["no time between looks", { interval: 0 }]
    ] as const
  ) {
    it(`refuses ${what}`, () => {
      assert.throws(() => Retention.layer(options), RangeError, `Retention: ${Object.keys(options)[0]} must be`)
    })
  }
})
