import { assert, describe, it } from "@effect/vitest"
import { Orchestration } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import { Instance } from "./replay/play.ts"

const ids = (instance: Instance) => instance.output as ReadonlyArray<string>

/** Two ids before a timer, one after it. */
const program = Effect.gen(function*() {
  const first = [yield* Orchestration.uuid, yield* Orchestration.uuid]
  yield* Effect.sleep("1 hour")
  return [...first, yield* Orchestration.uuid]
})

const run = (options?: ConstructorParameters<typeof Instance>[1]) => {
  const instance = new Instance(program, { staysWarm: false, ...options })
  instance.turn()
  instance.turn(instance.timers.get(2)!)
  return ids(instance)
}

describe("Orchestration.uuid", () => {
  it("is a UUID of version 4, the same on every replay", () => {
    const seen: Array<string> = []
    const instance = new Instance(
      Effect.gen(function*() {
        seen.push(yield* Orchestration.uuid)
        yield* Effect.sleep("1 hour")
        return yield* Orchestration.uuid
      }),
      { staysWarm: false }
    )
    instance.turn()
    instance.turn(instance.timers.get(2)!)
    // Every turn is replayed more than once.
    assert.isAbove(seen.length, 3)
    assert.lengthOf(new Set(seen), 1)
    const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/
    for (const id of [seen[0]!, instance.output as string]) assert.match(id, uuid)
  })

  it("is different every time, in every instance and in every execution", () => {
    const all = [run(), run({ instanceId: "j" }), run({ executionId: 2 })].flat()
    assert.lengthOf(new Set(all), 9)
  })
})
