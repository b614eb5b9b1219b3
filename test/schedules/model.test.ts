import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import { times } from "../utils/times.ts"
import { live } from "./utils/model.ts"
import { memory } from "./utils/stores.ts"

it.effect("a schedule never fires twice nor misses what its rule promises: outages, DST, clock steps, two schedulers", () =>
  Effect.gen(function*() {
    let starts = 0
    const lives = times(10)
    for (let seed = 1; seed <= lives; seed++) starts += yield* Effect.scoped(live(memory, seed))
    assert.isAbove(starts, 4 * lives)
  }).pipe(Effect.provide(Logger.layer([]))))
