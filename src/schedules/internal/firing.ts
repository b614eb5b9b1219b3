/**
 * What a scheduler decides about a schedule that it has claimed: its plan, with what it starts.
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import { hasAny } from "../../model/shared/attributes.ts"
import { anyRust, current } from "../../model/shared/coreVersion.ts"
import { timeOrderedUuid } from "../../tasks/shared/newTask.ts"
import type { ClaimedSchedule, Fire, RunStart } from "../ScheduleDriver.ts"
import * as definitions from "./definition.ts"
import type { Target } from "./definition.ts"
import type { PayloadOf, Sealing } from "./made.ts"
import * as plans from "./plan.ts"
import type { PlannedRun } from "./plan.ts"
import { occurrencesOf } from "./timing.ts"

/** A text says why this version cannot fire it. */
export const decide = Effect.fnUntraced(function*(
  claimed: ClaimedSchedule,
  nowMs: number,
  codes: ReadonlyMap<string, PayloadOf>,
  seal: Sealing["seal"]
): Effect.fn.Return<Result.Result<Fire, string>> {
  const { code, name, payload } = claimed
  const definition = Option.getOrUndefined(definitions.decode(claimed.definition))
  if (definition === undefined) return Result.fail("this version cannot read its definition")
  const occurrences = occurrencesOf(definition.timing)
  if (Result.isFailure(occurrences)) return Result.fail(occurrences.failure)
  const payloadOf: PayloadOf | undefined = payload === null ? codes.get(code ?? "") : () => Effect.succeed(payload)
  if (payloadOf === undefined) return Result.fail("this process does not have its code")

  const most = payload === null ? mostRuns : Math.max(1, Math.min(mostRuns, Math.floor(mostBytes / payload.length)))
  const payloads = new Map<string, string>()
  const refused = new Map<string, string>()
  while (true) {
    const plan = plans.make(definition, occurrences.success, { ...claimed, nowMs }, { most, refused })
    const known = refused.size
    for (const { id, kind, occurrenceMs, outcome } of plan.runs) {
      // Nothing is interrupted, and nothing waits, for a run without a payload.
      if (outcome !== "Started" && outcome !== "Queued" || payloads.has(id)) continue
      const made = yield* Effect.exit(
        Effect.suspend(() => payloadOf({ schedule: name, at: new Date(occurrenceMs), kind }))
      )
      if (made._tag === "Success") payloads.set(id, made.value)
      else refused.set(id, problemOf(made.cause))
    }
    // Without one that is refused, others may start.
    if (refused.size > known) continue
    const runs: Array<Fire["runs"][number]> = []
    for (const { id, ...run } of plan.runs) {
      if (run.outcome !== "Started") {
        runs.push({ ...run, start: null })
        continue
      }
      // One that was stored is sealed already.
      const sealed = yield* Effect.result(seal(definition.target, payloads.get(id)!))
      if (Result.isFailure(sealed)) return Result.fail(sealed.failure.message)
      runs.push({ ...run, start: yield* startOf(definition.target, id, sealed.success) })
    }
    return Result.succeed({
      name,
      revision: claimed.revision,
      firedUntilMs: plan.firedUntilMs,
      nextMs: plan.nextMs,
      lookMs: plan.lookMs,
      queued: plan.queued,
      requests: plan.requests,
      runCount: plan.runCount,
      runs,
      last: plan.last,
      interrupts: plan.interrupts
        ? { instanceId: claimed.lastInstanceId, taskId: claimed.lastTaskId, reason: reasonOf(name, plan.runs) }
        : null
    })
  }
})

// internal

const mostRuns = 100

/** Most bytes of payloads that a schedule starts at once. */
const mostBytes = 16 * 1024 * 1024

const startOf = Effect.fnUntraced(function*(target: Target, id: string, payload: string): Effect.fn.Return<RunStart> {
  if (target._tag === "Task") {
    const { maxAttempts, name, queue, wakeupKind } = target
    const task = { name, key: id, payload, maxAttempts, queue }
    if (wakeupKind === undefined) return { _tag: "Task", task }
    const taskId = yield* timeOrderedUuid
    return { _tag: "Task", task: { ...task, id: taskId, wakeup: { kind: wakeupKind, task_id: taskId } } }
  }
  const { attributes, name, servedBy, version } = target
  return {
    _tag: "Orchestration",
    start: {
      _tag: "StartOrchestration",
      instance: id,
      orchestration: name,
      input: payload,
      version,
      parentInstance: null,
      parentId: null,
      executionId: 1,
      ...(attributes !== undefined && hasAny(attributes) && { attributes })
    },
    pinnedVersion: servedBy === "rust" ? anyRust : current
  }
})

/** What code throws may quote the payload, so its text is not passed on. */
const problemOf = (cause: Cause.Cause<{ readonly message: string }>): string =>
  Option.match(Cause.findErrorOption(cause), {
    onNone: () => "the code that makes its payload has thrown",
    onSome: ({ message }) => message
  })

const reasonOf = (name: string, runs: ReadonlyArray<PlannedRun>): string => {
  const queued = runs.findLast(({ outcome }) => outcome === "Queued")
  const which = queued === undefined
    ? "the next occurrence"
    : `the occurrence of ${new Date(queued.occurrenceMs).toISOString()}`
  return `schedule ${name}: ${which} is due`
}
