import { describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import { sections } from "./outcomes.ts"

for (const [section, rows] of Object.entries(sections)) {
  describe(`docs/outcomes.md, ${section}`, () => {
    for (const [row, test] of Object.entries(rows)) it.effect(row, () => Effect.provide(test, Logger.layer([])))
  })
}
