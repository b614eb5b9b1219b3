/**
 * The answers of `Orchestration.changed` in one execution.
 *
 * An answer must be there at once: a fiber that waited for it would make its next requests after those of others, and
 * code without the call has made them before. So a replay reads ahead: a marker belongs to the place between the
 * requests before and after it.
 */
import type * as Event from "../model/Event.ts"
import * as markers from "../model/shared/markers.ts"
import { isRequest } from "./action.ts"

export class Changes {
  /** Undefined until a program asks: few do. */
  private answers: Map<string, boolean> | undefined
  /** What is being replayed; undefined in new turns. */
  private recorded: ReadonlyArray<Event.Event> | undefined
  /** The ids of changes, by the number of requests before their markers. */
  private places: ReadonlyMap<number, ReadonlySet<string>> | undefined
  /** From now on answers are those of this record; or new ones, when it is undefined. */
  follow(recorded: ReadonlyArray<Event.Event> | undefined): void {
    this.recorded = recorded
    this.places = undefined
  }

  /**
   * Whether the change with this id applies, and whether that must be recorded. `requests` counts those that the code
   * has made, without markers.
   */
  ask(id: string, requests: number): { readonly isChanged: boolean; readonly isNew: boolean } {
    this.answers ??= new Map()
    const known = this.answers.get(id)
    if (known !== undefined) return { isChanged: known, isNew: false }
    const isNew = this.recorded === undefined
    if (!isNew) this.places ??= placesOf(this.recorded!)
    const isChanged = isNew || this.places?.get(requests)?.has(id) === true
    this.answers.set(id, isChanged)
    return { isChanged, isNew }
  }
}

// internal

const placesOf = (recorded: ReadonlyArray<Event.Event>) => {
  const places = new Map<number, Set<string>>()
  let requests = 0
  for (const event of recorded) {
    if (event._tag === "ActivityScheduled" && markers.isMarker(event)) {
      const id = markers.changeOf(event.input)
      if (id !== undefined) places.set(requests, (places.get(requests) ?? new Set()).add(id))
    } else if (isRequest(event)) requests++
  }
  return places
}
