/**
 * How a retry reaches its instance: a message that names the requests to carry out again. It stays in the history,
 * where no program reads it, and says that there was a retry.
 */

/** No program can define a signal of this name. */
export const name = "duroxide-prisma/retry"

/** Event ids of requests. */
export const encode = (requests: ReadonlyArray<number>): string => JSON.stringify({ again: requests })

/** Event ids of requests of a fork. */
export const encodeFork = (requests: ReadonlyArray<number>): string => JSON.stringify({ again: requests, isFork: true })

export const isOfFork = (data: string): boolean => parse(data).isFork === true

/** What stands in the history in place of removed events. */
export const removed = (first: number, last: number): string => JSON.stringify({ removed: [first, last] })

/** What stands in the history of a fork behind the events that it has from the other instance. */
export const copied = (last: number): string => JSON.stringify({ copied: last, isFork: true })

/** Whether what follows was done after a retry or a fork. */
export const isCut = (data: string): boolean => {
  const { copied, removed } = parse(data)
  return copied !== undefined || removed !== undefined
}

/** Describes the retry in a sentence. */
export const describe = (data: string): string => {
  const { again, copied, removed } = parse(data)
  if (typeof copied === "number") return `events 1 to ${copied} are copies`
  if (Array.isArray(removed)) {
    const [first, last] = removed
    return first > last ? "nothing was removed" : `events ${first} to ${last} were removed`
  }
  const ids = Array.isArray(again) ? again : []
  return ids.length === 0 ? "nothing was open" : `done again: ${ids.map((id) => `#${id}`).join(" ")}`
}

/** Empty for a text that is not of this module. */
export const decode = (data: string): ReadonlyArray<number> => {
  const { again } = parse(data)
  return Array.isArray(again) ? again.filter(Number.isSafeInteger) : []
}

// internal

const parse = (
  data: string
): {
  readonly again?: unknown
  readonly removed?: unknown
  readonly copied?: unknown
  readonly isFork?: unknown
} => {
  try {
    return JSON.parse(data) ?? {}
  } catch {
    return {}
  }
}
