/**
 * Programs that wait in memory for their next turn, so that it need not replay.
 *
 * Nothing depends on them: a program is gone on with only when the history in the store is the one it has seen, and
 * thrown away on the first doubt. The least recently used go first when there are too many.
 */
import * as Event from "../model/Event.ts"
import type { HistoryEnd } from "../provider/Provider.ts"
import type { Suspended } from "../replay/turn.ts"
import type { Settings } from "./settings.ts"

interface Kept {
  readonly suspended: Suspended
  /** Row text. */
  readonly lastEvent: string
}

export class WarmInstances {
  // In order of last use.
  private readonly kept = new Map<string, Kept>()
  private readonly limits: Pick<Settings, "warmInstances" | "warmInstanceBytes">
  private total = 0

  constructor(limits: Pick<Settings, "warmInstances" | "warmInstanceBytes">) {
    this.limits = limits
  }

  get count() {
    return this.kept.size
  }

  /** Estimated from above. */
  get bytes() {
    return this.total
  }

  /** Whether the program kept for the instance has seen this history and no other. */
  isKnown(end: HistoryEnd): boolean {
    const kept = this.kept.get(end.instanceId)
    return kept !== undefined && kept.suspended.executionId === end.executionId && kept.lastEvent === end.lastEvent &&
      kept.suspended.isSound()
  }

  /** Hands a program out: it is kept again when its next turn is stored. */
  take(instanceId: string): Suspended | undefined {
    const kept = this.kept.get(instanceId)
    if (kept === undefined) return undefined
    this.kept.delete(instanceId)
    this.total -= kept.suspended.bytes
    return kept.suspended
  }

  keep(instanceId: string, suspended: Suspended): void {
    this.take(instanceId)
    this.kept.set(instanceId, { suspended, lastEvent: Event.encode(suspended.lastEvent) })
    this.total += suspended.bytes
    for (const oldest of this.kept.keys()) {
      if (this.count <= this.limits.warmInstances && this.total <= this.limits.warmInstanceBytes) break
      this.take(oldest)
    }
  }
}
