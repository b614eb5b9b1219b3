/**
 * What waits for changes of instances: callers for ends, statuses and values, held activities for their cancellation.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { Provider } from "../Provider.ts"
import type { ProviderDriver } from "../ProviderDriver.ts"
import * as changes from "./changes.ts"
import * as ends from "./ends.ts"
import type { Hints } from "./hints.ts"
import * as progress from "./progress.ts"
import type { Looking } from "./watches.ts"

export interface Waits {
  readonly operations: Pick<Provider["Service"], "awaitEnd" | "awaitProgress" | "isNotified" | "onChanged">
  /** What this process has stored. */
  readonly stored: Pick<ends.Ends, "started" | "turnStored"> & Pick<changes.Changes, "lostAnswer">
}

export const make = Effect.fnUntraced(function*(
  driver: Pick<ProviderDriver["Service"], "readEnds" | "readProgress">,
  hints: Hints,
  options: Looking
): Effect.fn.Return<Waits, never, Scope.Scope> {
  const changing = yield* changes.make(hints)
  const ofEnds = yield* ends.make(driver, changing, options)
  const ofProgress = yield* progress.make(driver, changing, options)
  return {
    operations: {
      awaitEnd: ofEnds.awaitEnd,
      awaitProgress: ofProgress.awaitProgress,
      isNotified: changing.isNotified,
      onChanged: changing.onChanged
    },
    stored: {
      started: ofEnds.started,
      lostAnswer: changing.lostAnswer,
      turnStored: (turn) => {
        ofEnds.turnStored(turn)
        ofProgress.turnStored(turn)
        changing.turnStored(turn)
      }
    }
  }
})
