/**
 * Records a scenario: the real runtime, in virtual time.
 */
import { recordHistory, TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { instanceId, runtime } from "./ours.ts"
import type { Scenario } from "./ours.ts"

// Stacks name local folders and source lines.
const stacks = /,"stack":"(?:[^"\\]|\\.)*"/g

/** The text of its fixture. Recorded again, it is the same. */
export const record = (scenario: Scenario): Effect.Effect<string> =>
  scenario.drive.pipe(
    Effect.andThen(recordHistory(instanceId)),
    Effect.map((text) => text.replace(stacks, "")),
    Effect.provide(
      TestRuntime.layer(runtime(scenario), { startAt: "2030-01-01T00:00:00Z" }).pipe(
        // Some of them die on purpose.
        Layer.provideMerge(Logger.layer([]))
      )
    ),
    Effect.orDie
  )
