import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import { live } from "./utils/model.ts"
import { prisma } from "./utils/prismaStore.ts"
import { memory } from "./utils/stores.ts"

it.effect("in memory, a schedule never fires twice nor misses what its rule promises", () =>
  Effect.gen(function*() {
    let starts = 0
    for (let seed = 101; seed <= 300; seed++) starts += yield* Effect.scoped(live(memory, seed))
    assert.isAbove(starts, 800)
  }).pipe(Effect.provide(Logger.layer([]))))

it.effect("on PostgreSQL, a schedule never fires twice nor misses what its rule promises", () =>
  Effect.gen(function*() {
    let starts = 0
    for (let seed = 1001; seed <= 1025; seed++) starts += yield* Effect.scoped(live(prisma, seed))
    assert.isAbove(starts, 100)
  }).pipe(Effect.provide(Logger.layer([]))))
