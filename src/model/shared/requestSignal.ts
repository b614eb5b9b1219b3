/**
 * How requests reach an instance, and how its answers reach those who asked.
 *
 * A question is a message that the instance keeps, as it keeps signals. An answer is a value of the instance: the turn
 * that answers stores it, continue-as-new keeps it, and every reader of values can read it, also one in Rust.
 */

/** A question in a message. `payload` is JSON text. */
export interface Question {
  readonly id: string
  readonly payload: string
}

/** Why a question is answered: by its handler, by the check before it, or because the handler died. */
export type Answer =
  | { readonly _tag: "Success"; readonly value: string }
  | { readonly _tag: "Refused"; readonly error: string; readonly isRejected: boolean }
  | { readonly _tag: "Failed"; readonly problem: string; readonly isRejected: boolean }

/** The signal of a request; no program can define one of such a name. */
export const nameOf = (request: string): string => `${prefix}${request}`

export const isName = (signal: string): boolean => signal.startsWith(prefix)

/** The request of such a signal. */
export const requestOf = (signal: string): string => signal.slice(prefix.length)

export const encode = ({ id, payload }: Question): string => `{"id":${JSON.stringify(id)},"payload":${payload}}`

/** Undefined for a text that is not of this module. */
export const decode = (data: string): Question | undefined => {
  const { id, payload } = parse(data)
  return typeof id === "string" ? { id, payload: JSON.stringify(payload) ?? "null" } : undefined
}

/** The key of the value that answers a question; no program can define one. */
export const answerKey = (id: string): string => `${answerPrefix}${id}`

export const isAnswerKey = (key: string): boolean => key.startsWith(answerPrefix)

export const idOfAnswer = (key: string): string => key.slice(answerPrefix.length)

export const encodeAnswer = (answer: Answer): string => {
  const rejected = answer._tag !== "Success" && answer.isRejected ? `,"rejected":true` : ""
  switch (answer._tag) {
    case "Success":
      return `{"success":${answer.value}}`
    case "Refused":
      return `{"error":${answer.error}${rejected}}`
    case "Failed":
      return `{"failed":${JSON.stringify(answer.problem)}${rejected}}`
  }
}

/** A text that is not of this module is a failure that says so. */
export const decodeAnswer = (text: string): Answer => {
  const { error, failed, rejected, success } = parse(text)
  const isRejected = rejected === true
  if (success !== undefined) return { _tag: "Success", value: JSON.stringify(success) }
  if (error !== undefined) return { _tag: "Refused", error: JSON.stringify(error), isRejected }
  return { _tag: "Failed", problem: typeof failed === "string" ? failed : "its answer cannot be read", isRejected }
}

/**
 * Answers that an instance no longer keeps: it keeps the newest 100, and those of the last minute, 1,000 at most. Given
 * the times at which values were set, milliseconds since the Unix epoch.
 */
export const outdated = (setAt: ReadonlyMap<string, number>, nowMs: number): ReadonlyArray<string> => {
  const answers = [...setAt].filter(([key]) => isAnswerKey(key))
  const earliestMs = nowMs - keptMs
  if (answers.length <= keptAnswers) return []
  if (answers.length <= mostAnswers && answers.every(([, ms]) => ms >= earliestMs)) return []
  answers.sort(([a, aMs], [b, bMs]) => aMs - bMs || (a < b ? -1 : 1))
  return answers.filter(([, ms], i) => {
    const left = answers.length - i
    return left > mostAnswers || left > keptAnswers && ms < earliestMs
  }).map(([key]) => key)
}

export const keptAnswers = 100

/** For callers that learn of their answers late, while many others ask. */
export const mostAnswers = 1_000
export const keptMs = 60_000

// internal

const prefix = "duroxide-prisma/request/"

const answerPrefix = "duroxide-prisma/answer/"

const parse = (text: string): { readonly [field: string]: unknown } => {
  try {
    return JSON.parse(text) ?? {}
  } catch {
    return {}
  }
}
