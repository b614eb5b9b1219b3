import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import { times } from "../utils/times.ts"
import { live } from "./utils/model.ts"
import { prisma } from "./utils/prismaStore.ts"
import { memory } from "./utils/stores.ts"

it.effect("in memory, a schedule never fires twice nor misses what its rule promises", () =>
  Effect.gen(function*() {
    let starts = 0
    const lives = times(60)
    for (let n = 1; n <= lives; n++) starts += yield* Effect.scoped(live(memory, 100 + n))
    assert.isAbove(starts, 4 * lives)
  }).pipe(Effect.provide(Logger.layer([]))))

it.effect("on PostgreSQL, a schedule never fires twice nor misses what its rule promises", () =>
  Effect.gen(function*() {
    let starts = 0
    const lives = times(8)
    for (let n = 1; n <= lives; n++) starts += yield* Effect.scoped(live(prisma, 1000 + n))
    assert.isAbove(starts, 4 * lives)
  }).pipe(Effect.provide(Logger.layer([]))))
