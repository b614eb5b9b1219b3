import type { PrismaPg } from "@prisma/adapter-pg"
import * as Predicate from "effect/Predicate"

type Adapter = Awaited<ReturnType<PrismaPg["connect"]>>

/**
 * The same adapter, whose errors also name the function of the server that failed: `routine`, as `pg` gives it. One SQLSTATE
 * may stand for different errors, and messages have the language of the server.
 */
export const withRoutines = (adapter: Adapter): Adapter => {
  // Protected, so out of sight of the compiler.
  const onError: unknown = Reflect.get(adapter, "onError")
  if (typeof onError !== "function") return adapter
  Reflect.set(adapter, "onError", (error: unknown) => {
    try {
      onError.call(adapter, error)
    } catch (thrown) {
      const cause = Predicate.hasProperty(thrown, "cause") ? thrown.cause : undefined
      if (Predicate.isObject(cause) && Predicate.hasProperty(error, "routine")) {
        Object.assign(cause, { routine: error.routine })
      }
      throw thrown
    }
  })
  return adapter
}
