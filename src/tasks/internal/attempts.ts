/**
 * What a worker does with tasks, of whatever queue their wake-ups come from: it claims them, runs their handlers under
 * leases, and settles the attempts.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { Topic, Topics } from "../../waking/Topics.ts"
import type { Served } from "../shared/code.ts"
import type { Serves, TaskDriver } from "../TaskDriver.ts"
import * as claimings from "./claiming.ts"
import type { TaskClaiming } from "./claiming.ts"
import type { Watch } from "./claimRights.ts"
import * as handlerFibers from "./handlerFibers.ts"
import type { Start } from "./handlerFibers.ts"
import * as leasesOf from "./leases.ts"
import * as passedWakeups from "./passedWakeups.ts"
import type { Pass } from "./passedWakeups.ts"
import * as settlements from "./settlement.ts"
import type { Settlement } from "./settlement.ts"

export interface Attempts extends Omit<Settlement, "isStale"> {
  /** Tasks that every claim is for. */
  readonly serves: Serves
  readonly watch: Watch
  /** Waits while the leases of running attempts are not renewed. Every claim waits for it first. */
  readonly inTouch: Effect.Effect<void>
  readonly claiming: Omit<TaskClaiming, "release">
  readonly start: Start
  readonly pass: Pass
}

export const make = Effect.fnUntraced(function*({ driver, served, watch, workerId }: {
  readonly driver: TaskDriver["Service"]
  readonly served: ReadonlyMap<string, Served>
  readonly watch: Watch
  readonly workerId: string
}): Effect.fn.Return<Attempts, never, Topics | Scope.Scope> {
  const topics = yield* Topics
  const leases = yield* leasesOf.make(driver)
  const serves = {
    names: [...served.keys()],
    leaseMs: [...served.values()].map(({ leaseMs }) => leaseMs),
    workerId
  }
  const watchInTouch: Watch = (foundWork) => (claim) => Effect.andThen(leases.inTouch, watch(foundWork)(claim))
  const claiming = yield* claimings.make({ driver, serves, topics, watch: watchInTouch })
  const { release } = claiming
  const leaseMsOf = ({ name }: { readonly name: string }) => served.get(name)!.leaseMs
  const { isStale, ...settlement } = yield* settlements.make({ driver, leaseMsOf, topics })
  const start = yield* handlerFibers.make({ driver, isStale, leases, release, served, workerId })
  // The end of a task that runs here may be a cancellation.
  yield* topics.subscribe(Topic.tasks, { received: (_, topic) => leases.check(Topic.taskId(topic)) })
  return {
    ...settlement,
    serves,
    watch: watchInTouch,
    inTouch: leases.inTouch,
    claiming,
    start,
    giveBack: (claimed) =>
      Effect.suspend(() => {
        release(claimed)
        return settlement.giveBack(claimed)
      }),
    pass: passedWakeups.make()
  }
})
