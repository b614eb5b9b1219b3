/**
 * What this process leaves out of its claims, because an operator has paused it.
 */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { TagFilter } from "../model/Instance.ts"
import type { Pause } from "../model/Pause.ts"
import { ours } from "../model/shared/logging.ts"
import { shownTarget } from "../model/shared/pauses.ts"
import { anyVersion } from "../model/shared/versions.ts"
import type { Provider } from "../provider/Provider.ts"
import type { ServedOrchestration } from "../provider/ProviderDriver.ts"
import type { Registry } from "./registry.ts"

/** What may be claimed now. Nothing before the store has said what is paused. */
export interface Pauses {
  readonly serves: () => ReadonlyArray<ServedOrchestration>
  readonly activities: () => ReadonlySet<string>
  readonly tags: () => TagFilter
  readonly isOrchestrationPaused: (name: string, version: string) => boolean
  readonly isActivityPaused: (name: string, tag: string | undefined) => boolean
  /** Calls `listener` at each answer of the store, and says whether something has changed. */
  readonly onAnswer: (listener: (hasChanged: boolean) => void) => void
  /** Runs a claim, and begins it again when something has changed; waits while there is nothing to claim. */
  readonly claiming: <A, E>(mayClaim: () => boolean, claim: Effect.Effect<A, E>) => Effect.Effect<A, E>
}

/** Follows what is paused until the scope is closed. */
export const make = Effect.fnUntraced(function*(options: {
  readonly provider: Provider["Service"]
  readonly registry: Pick<Registry, "serves" | "resolve">
  readonly activities: ReadonlyArray<string>
  readonly tags: TagFilter
}): Effect.fn.Return<Pauses, never, Scope.Scope> {
  const run = Effect.runForkWith(yield* Effect.context<never>())
  const listeners: Array<(hasChanged: boolean) => void> = []
  let served = without(options, everything)
  let known: string | undefined
  let change = Deferred.makeUnsafe<void>()

  yield* options.provider.onPaused((pauses) => {
    const now = JSON.stringify(pauses.map(({ target }) => target))
    const hasChanged = now !== known
    if (hasChanged) {
      if (known !== undefined || pauses.length > 0) run(report(pauses))
      known = now
      served = without(options, pauses)
      const before = change
      change = Deferred.makeUnsafe()
      Deferred.doneUnsafe(before, Effect.void)
    }
    for (const listener of listeners) listener(hasChanged)
  })

  const claiming: Pauses["claiming"] = (mayClaim, claim) =>
    Effect.suspend(() => {
      const changed = Deferred.await(change)
      return mayClaim()
        ? Effect.flatten(Effect.raceFirst(
          Effect.map(claim, Effect.succeed),
          Effect.as(changed, claiming(mayClaim, claim))
        ))
        : Effect.andThen(changed, claiming(mayClaim, claim))
    })

  return {
    serves: () => served.serves,
    activities: () => served.activities,
    tags: () => served.tags,
    isOrchestrationPaused: (name, version) => served.isOrchestrationPaused(name, version),
    isActivityPaused: (name, tag) => served.isActivityPaused(name, tag),
    onAnswer: (listener) => void listeners.push(listener),
    claiming
  }
})

// internal

const everything: ReadonlyArray<Pick<Pause, "target">> = [{ target: { _tag: "Everything" } }]

const without = (
  { activities, registry, tags }: Omit<Parameters<typeof make>[0], "provider">,
  pauses: ReadonlyArray<Pick<Pause, "target">>
) => {
  const all = pauses.some(({ target }) => target._tag === "Everything")
  const names = new Map<string, ReadonlySet<string> | "all">()
  const pausedActivities = new Set<string>()
  const pausedTags = new Set<string>()
  for (const { target } of pauses) {
    if (target._tag === "Activity") pausedActivities.add(target.name)
    if (target._tag === "Tag") pausedTags.add(target.tag)
    if (target._tag !== "Orchestration") continue
    const { name, version } = target
    const before = names.get(name)
    if (before !== "all") names.set(name, version === undefined ? "all" : new Set([...before ?? [], version]))
  }
  const isOrchestrationPaused = (name: string, version: string) => {
    const versions = names.get(name)
    return all || versions === "all" || versions?.has(version) === true
  }
  return {
    serves: registry.serves.flatMap(({ name, versions }) => {
      // A start that asks for no version gets the newest one.
      const newest = registry.resolve(name, null)!.version
      const left = versions.filter((version) =>
        !isOrchestrationPaused(name, anyVersion.includes(version) ? newest : version)
      )
      return left.some((version) => !anyVersion.includes(version)) ? [{ name, versions: left }] : []
    }),
    activities: new Set(all ? [] : activities.filter((name) => !pausedActivities.has(name))),
    tags: withoutTags(tags, pausedTags),
    isOrchestrationPaused,
    isActivityPaused: (name: string, tag: string | undefined) =>
      all || pausedActivities.has(name) || (tag !== undefined && pausedTags.has(tag))
  }
}

/** A process that serves any tag claims paused ones as well, and gives them back: no filter leaves a tag out. */
const withoutTags = (tags: TagFilter, paused: ReadonlySet<string>): TagFilter => {
  if (tags._tag !== "Tags" && tags._tag !== "DefaultAnd") return tags
  const left = tags.tags.filter((tag) => !paused.has(tag))
  return left.length > 0 ? { ...tags, tags: left } : { _tag: tags._tag === "Tags" ? "None" : "DefaultOnly" }
}

const report = (pauses: ReadonlyArray<Pause>) =>
  Effect.logInfo("Runtime: an operator has changed what is paused").pipe(
    ours({ paused: pauses.map(({ target }) => shownTarget(target)).join(", ") || "nothing" })
  )
