/**
 * Questions to an instance, and their answers.
 */
import type * as Event from "../model/Event.ts"
import { Ledger } from "../model/shared/ledger.ts"
import * as requestSignal from "../model/shared/requestSignal.ts"

export interface Question {
  readonly requestId: string
  /** What the current execution was asked; undefined for an answer to an earlier one. */
  readonly asked: {
    readonly name: string
    readonly payload: string
    readonly sinceMs: number
    readonly eventId: number
  } | undefined
  readonly isTaken: boolean
  readonly answer: requestSignal.Answer | undefined
}

/** Lists questions to the current execution, the newest first, and answers to earlier ones that are kept. */
export const questionsOf = (
  history: ReadonlyArray<Event.Event>,
  answers: ReadonlyArray<readonly [requestId: string, answer: string]>
): ReadonlyArray<Question> => {
  const ledger = Ledger.of(history)
  const unread = new Set(ledger.unread().map(({ eventId }) => eventId))
  const answered = new Map(answers)
  const found = new Map<string, Question>()
  for (const event of history) {
    if (event._tag !== "ExternalEventPersistent" || !requestSignal.isName(event.name)) continue
    const question = requestSignal.decode(event.data)
    // The same question may come again and again.
    if (question === undefined || found.has(question.id)) continue
    const answer = answered.get(question.id)
    found.set(question.id, {
      requestId: question.id,
      asked: {
        name: requestSignal.requestOf(event.name),
        payload: question.payload,
        sinceMs: event.timestampMs,
        eventId: event.eventId
      },
      isTaken: !unread.has(event.eventId),
      answer: answer === undefined ? undefined : requestSignal.decodeAnswer(answer)
    })
  }
  const earlier = answers.flatMap(([requestId, answer]): ReadonlyArray<Question> =>
    found.has(requestId)
      ? []
      : [{ requestId, asked: undefined, isTaken: true, answer: requestSignal.decodeAnswer(answer) }]
  )
  return [...[...found.values()].toReversed(), ...earlier]
}
