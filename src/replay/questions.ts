/**
 * What an execution has decided about questions before: a replay does not check them again.
 *
 * A check is code that may change while instances run. So its refusals are read from the recorded answers, and a
 * question without one was accepted.
 */
import type * as Event from "../model/Event.ts"
import * as requestSignal from "../model/shared/requestSignal.ts"

export class Questions {
  /** Recorded answers by the ids of their questions, oldest first; undefined in new turns, and until one is taken. */
  private answers: Map<string, Array<string>> | undefined
  /** What is being replayed. */
  private recorded: ReadonlyArray<Event.Event> | undefined

  follow(recorded: ReadonlyArray<Event.Event> | undefined): void {
    this.recorded = recorded
    this.answers = undefined
  }

  /** The recorded answer that refuses this question without its handler. Asked once for each question that is taken. */
  rejection(id: string): string | undefined {
    if (this.recorded === undefined) return undefined
    this.answers ??= answersOf(this.recorded)
    const answer = this.answers.get(id)?.shift()
    if (answer === undefined) return undefined
    const decoded = requestSignal.decodeAnswer(answer)
    return decoded._tag !== "Success" && decoded.isRejected ? answer : undefined
  }
}

// internal

const answersOf = (recorded: ReadonlyArray<Event.Event>) => {
  const answers = new Map<string, Array<string>>()
  for (const event of recorded) {
    if (event._tag !== "KeyValueSet" || !requestSignal.isAnswerKey(event.key)) continue
    const id = requestSignal.idOfAnswer(event.key)
    answers.set(id, [...answers.get(id) ?? [], event.value])
  }
  return answers
}
