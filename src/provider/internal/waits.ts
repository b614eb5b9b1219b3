/**
 * What waits for changes of instances: callers for ends, statuses and values, readers for chunks, held activities for
 * their cancellation.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { Hints } from "../../waking/hints.ts"
import type { Settings } from "../../waking/pollMode.ts"
import type { Looking } from "../../waking/watches.ts"
import type { Provider } from "../Provider.ts"
import type { ProviderDriver } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { closed, shared } from "../shared/statement.ts"
import type { Sharing } from "../shared/statement.ts"
import * as changes from "./changes.ts"
import * as ends from "./ends.ts"
import * as progress from "./progress.ts"
import * as streams from "./streams.ts"

export interface Waits {
  readonly operations: Pick<
    Provider["Service"],
    "appendChunks" | "awaitEnd" | "awaitProgress" | "isNotified" | "onChanged" | "readStream" | "resumeChunks"
  >
  /** What this process has stored. */
  readonly stored: Pick<ends.Ends, "started" | "turnStored"> & Pick<changes.Changes, "lostAnswer">
}

export const make = Effect.fnUntraced(function*(
  driver: Pick<
    ProviderDriver["Service"],
    "appendChunks" | "readChunks" | "readEnds" | "readProgress" | "resumeChunks"
  >,
  hints: Hints,
  options: Sharing & { readonly longPolling: Pick<Settings, "fallbackPollMs"> }
): Effect.fn.Return<Waits, never, Scope.Scope> {
  const changing = yield* changes.make(hints)
  const looking: Looking<ProviderError> = {
    fallbackPollMs: options.longPolling.fallbackPollMs,
    closed,
    shared: (operation, look, maxBatch) => shared(operation, look, { ...options, maxBatch })
  }
  const ofEnds = yield* ends.make(driver, changing, looking)
  const ofProgress = yield* progress.make(driver, changing, looking)
  const { turnStored, ...ofStreams } = yield* streams.make(driver, changing, looking, options)
  return {
    operations: {
      ...ofStreams,
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
        turnStored(turn)
        changing.turnStored(turn)
      }
    }
  }
})
