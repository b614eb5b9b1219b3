/**
 * What the store knows, as the interface says it.
 */
import * as DateTime from "effect/DateTime"
import type * as Attribute from "../../model/Attribute.ts"
import type * as Block from "../../model/Block.ts"
import { PauseTarget } from "../../model/Pause.ts"
import type { Pause } from "../../model/Pause.ts"
import { keyOf } from "../../model/shared/pauses.ts"
import { outcomeOf } from "../../operating/outcome.ts"
import { tagsOf } from "../../operating/processes.ts"
import type { Retry } from "../../prisma/shared/retryReport.ts"
import type { InstanceInfo } from "../../provider/Admin.ts"
import type { InstanceCount, ProcessInfo, QueuePlace } from "../../provider/AdminDriver.ts"
import type * as Api from "../Api.ts"

/** Longest payload in a list, in characters. */
const longestListed = 200

export const target = (of: PauseTarget): typeof Api.PauseTarget.Type => {
  const { name, target, version } = keyOf(of)
  return {
    kind: target as typeof Api.PauseTarget.Type["kind"],
    name: name === "" ? null : name,
    version: version === "" ? null : version
  }
}

/** What is wrong, as a text, if a name is missing, or a name or version is given that the kind does not have. */
export const targetOf = ({ kind, name, version }: typeof Api.PauseTarget.Type): PauseTarget | string => {
  if (kind === "everything" && name !== null) return "everything has no name: it must be null"
  if (kind !== "orchestration" && version !== null) return `only an orchestration has a version, ${kind} has none`
  if (kind === "everything") return PauseTarget.Everything()
  if (name === null || name === "") return `name the ${kind} to pause or to resume`
  switch (kind) {
    case "instance":
      return PauseTarget.Instance({ instanceId: name })
    case "orchestration":
      return version === null ? PauseTarget.Orchestration({ name }) : PauseTarget.Orchestration({ name, version })
    case "activity":
      return PauseTarget.Activity({ name })
    case "tag":
      return PauseTarget.Tag({ tag: name })
  }
}

export const pause = (one: Pause): typeof Api.Pause.Type => ({
  target: target(one.target),
  reason: one.reason,
  sinceMs: one.sinceMs
})

const block = (one: Block.Block): typeof Api.Block.Type => ({
  reason: one.reason,
  problem: one.problem,
  eventId: one.eventId,
  build: one.build,
  sinceMs: one.sinceMs,
  triedAtMs: one.triedAtMs,
  tries: one.tries
})

const attribute = (value: Attribute.Value): typeof Api.AttributeValue.Type =>
  DateTime.isDateTime(value) ? { timeMs: value.epochMilliseconds } : value

export const instance = (
  state: InstanceInfo,
  { isListed, retry, seesPayloads }: {
    readonly isListed: boolean
    readonly retry?: Retry | undefined
    readonly seesPayloads: boolean
  }
): typeof Api.Instance.Type => {
  const { error, output, status } = outcomeOf(state)
  const cut = (text: string | null) =>
    text === null || !isListed || text.length <= longestListed ? text : `${text.slice(0, longestListed)}…`
  return {
    instanceId: state.instanceId,
    orchestration: state.orchestrationName,
    version: state.orchestrationVersion,
    status,
    executionId: state.executionId,
    parentId: state.parentInstanceId,
    output: seesPayloads ? cut(output) : null,
    error: cut(error),
    customStatus: cut(state.customStatus),
    attributes: Object.fromEntries(
      Object.entries(state.attributes).map(([name, value]) => [name, attribute(value)])
    ),
    block: state.block === null ? null : block(state.block),
    pause: state.pause === null ? null : pause(state.pause),
    retry: retry === undefined
      ? null
      : { activity: retry.activity, error: cut(retry.error), atMs: retry.atMs, isRunning: retry.isRunning },
    createdAtMs: state.createdAtMs,
    updatedAtMs: state.updatedAtMs
  }
}

export const count = (one: InstanceCount): typeof Api.InstanceCount.Type => ({
  orchestration: one.orchestrationName,
  status: one.status,
  version: one.orchestrationVersion,
  instances: one.instances,
  isEstimate: one.isEstimate
})

export const place = (one: QueuePlace): typeof Api.Place.Type => ({
  visibleAtMs: one.visibleAtMs,
  lockedUntilMs: one.lockedUntilMs,
  deliveries: one.attemptCount,
  isDue: one.isDue
})

export const process = (one: ProcessInfo): typeof Api.Process.Type => ({
  id: one.id,
  build: one.build,
  host: one.host,
  pid: one.pid,
  sinceMs: one.sinceMs,
  seenMs: one.seenMs,
  isAlive: one.isAlive,
  isListening: one.isListening,
  orchestrations: one.orchestrations,
  activities: one.activities,
  tags: tagsOf(one.tags),
  orchestrationSlots: one.orchestrationSlots,
  activitySlots: one.activitySlots,
  orchestrationSlotsInUse: one.slotsInUse?.orchestrations ?? null,
  activitySlotsInUse: one.slotsInUse?.activities ?? null
})
