/**
 * One action on every instance that a search finds, with its progress.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Client from "../../Client.ts"
import { PauseTarget } from "../../model/Pause.ts"
import * as Bulk from "../../operating/bulk.ts"
import { byOperator } from "../../operating/byOperator.ts"
import * as RetryPlan from "../../operating/retryPlan.ts"
import * as Selection from "../../operating/selection.ts"
import { Admin } from "../../provider/Admin.ts"
import type { InstanceSearch } from "../../provider/Admin.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { Refused } from "../Api.ts"
import type * as Api from "../Api.ts"
import type { CurrentActor } from "../Api.ts"
import * as Failures from "./failures.ts"
import type { Services } from "./services.ts"

type Progress = typeof Api.BulkProgress.Type

/**
 * Checks what is asked for. The effect that it returns starts it in `scope`, and returns its progress. It continues if
 * no one reads that, and calls `ended` at its end. A dry run changes nothing, and is not recorded.
 */
export const make = Effect.fnUntraced(function*(
  { action, dryRun, reason }: typeof Api.Bulk.Type,
  search: InstanceSearch,
  scope: Scope.Scope,
  ended: (progress: Progress) => Effect.Effect<void, never, Admin | CurrentActor>
): Effect.fn.Return<
  Effect.Effect<Stream.Stream<Progress>, never, Services | CurrentActor>,
  Refused | ProviderError,
  Services | CurrentActor
> {
  const admin = yield* Admin
  const client = yield* Client.Client
  const selectable = selectables[action]
  if (search.status !== undefined && !selectable.statuses.includes(search.status)) {
    return yield* new Refused({
      code: "InvalidInput",
      message: `${search.status} instances cannot be chosen for ${action}: choose ${
        selectable.statuses.join(", ")
      }, or none`
    })
  }
  const found = yield* Selection.matching(search, selectable)
  const act = (id: string): Effect.Effect<unknown, ProviderError> => {
    switch (action) {
      case "retry":
        return admin.retry(id, { reason })
      case "interrupt":
        return client.interrupt(id, reason ?? byOperator)
      case "terminate":
        return client.terminate(id, reason ?? byOperator)
      case "pause":
        return admin.pause(PauseTarget.Instance({ instanceId: id }), { reason })
      case "resume":
        return admin.resume(PauseTarget.Instance({ instanceId: id }))
      case "delete":
        return admin.deleteInstance(id)
    }
  }
  const shown = (tag: Progress["_tag"], tally: Bulk.Tally | undefined, stopped: string | null): Progress => ({
    _tag: tag,
    done: tally?.done ?? 0,
    refused: tally?.refusals ?? 0,
    first: tally?.ids.slice() ?? [],
    refusals: tally?.refused.slice(0, mostShown).map(({ code, id, message }) => ({ instanceId: id, code, message })) ??
      [],
    isMore: dryRun && (tally?.done ?? 0) >= mostCounted,
    retry: tag === "Done" ? sum : null,
    stopped
  })
  const progress = yield* Queue.sliding<Progress, Cause.Done>(1)
  let tally: Bulk.Tally | undefined
  let sum: RetryPlan.Sum | null = null
  let lastMs = 0
  const all = Bulk.each({
    items: dryRun ? Stream.take(found, mostCounted) : found,
    act: dryRun ? () => Effect.void : act,
    onStart: (begun) => {
      tally = begun
    },
    onProgress: (tally) =>
      Effect.flatMap(Clock.currentTimeMillis, (nowMs) => {
        if (nowMs - lastMs < everyMs) return Effect.void
        lastMs = nowMs
        return Effect.asVoid(Queue.offer(progress, shown("Progress", tally, null)))
      })
  })
  const summed = action !== "retry" || !dryRun ?
    all :
    Effect.tap(all, () =>
      Effect.map(RetryPlan.planMany(found), (found) => {
        sum = found
      }))
  return summed.pipe(
    // Also when this process ends meanwhile, and after a defect.
    Effect.onExit((exit) => {
      const last = shown("Done", tally, Exit.isSuccess(exit) ? null : stoppedBy(exit.cause))
      return Effect.andThen(dryRun ? Effect.void : ended(last), Queue.offer(progress, last)).pipe(
        Effect.andThen(Queue.end(progress))
      )
    }),
    Effect.forkIn(scope),
    Effect.as(Stream.fromQueue(progress))
  )
})

// internal

/** Why it ended before its end. What it has begun may be done or not. */
const stoppedBy = (cause: Cause.Cause<ProviderError>): string => {
  const error = Cause.findErrorOption(cause)
  if (Option.isNone(error)) return Cause.hasInterruptsOnly(cause) ? "the dashboard was closed" : "a defect, see its log"
  const { message } = Failures.of(error.value)
  return error.value.isRetryable ? `${message}. Do it again: it takes up those that are left` : message
}

/** Most instances that a dry run counts. */
const mostCounted = 10_000

/** Refusals that are shown. */
const mostShown = 100

const everyMs = 250

const selectables: { readonly [action in typeof Api.Bulk.Type["action"]]: Selection.Selectable } = {
  retry: Selection.toRetry,
  interrupt: Selection.toEnd,
  terminate: Selection.toEnd,
  pause: Selection.toEnd,
  resume: { statuses: ["Paused"], defaults: ["Paused"] },
  delete: Selection.toDelete(false)
}
