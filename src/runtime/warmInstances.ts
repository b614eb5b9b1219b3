/**
 * Warm instances: their programs wait in memory for the next turn, so that it need not replay the history.
 *
 * Correctness does not depend on them. A warm program resumes only if the history in the store is the one it has seen;
 * otherwise it is discarded. When there are too many, the least recently used are discarded first.
 */
import type * as Event from "../model/Event.ts"
import type { HistoryEnd } from "../provider/Provider.ts"
import type { WarmProgram } from "../replay/turn.ts"
import type { Settings } from "./settings.ts"

interface Entry {
  readonly program: WarmProgram
  /** Row text. */
  readonly lastEvent: string
}

export class WarmInstances {
  // In order of last use.
  private readonly entries = new Map<string, Entry>()
  private readonly limits: Pick<Settings, "warmInstances" | "warmInstanceBytes">
  private total = 0

  constructor(limits: Pick<Settings, "warmInstances" | "warmInstanceBytes">) {
    this.limits = limits
  }

  get count() {
    return this.entries.size
  }

  /** Estimated from above. */
  get bytes() {
    return this.total
  }

  /** Whether the instance is warm, and its program has seen this history and no other. */
  hasSeen(end: HistoryEnd): boolean {
    const entry = this.entries.get(end.instanceId)
    return entry !== undefined && entry.program.executionId === end.executionId && entry.lastEvent === end.lastEvent &&
      entry.program.isSound()
  }

  /** The program, if the instance is warm; it stays. */
  peek(instanceId: string): WarmProgram | undefined {
    return this.entries.get(instanceId)?.program
  }

  /** Removes a program for its next turn; `add` returns it when that turn is stored. */
  take(instanceId: string): WarmProgram | undefined {
    const entry = this.entries.get(instanceId)
    if (entry === undefined) return undefined
    this.entries.delete(instanceId)
    this.total -= entry.program.bytes
    return entry.program
  }

  /** `storedText` is that of the provider. */
  add(instanceId: string, program: WarmProgram, storedText: (event: Event.Event) => string): void {
    this.take(instanceId)
    this.entries.set(instanceId, { program, lastEvent: storedText(program.lastEvent) })
    this.total += program.bytes
    for (const oldest of this.entries.keys()) {
      if (this.count <= this.limits.warmInstances && this.total <= this.limits.warmInstanceBytes) break
      this.take(oldest)
    }
  }
}
