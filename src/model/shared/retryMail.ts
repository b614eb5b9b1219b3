/**
 * How a retry reaches its instance: a message that names the requests to carry out again. It stays in the history,
 * where no program reads it, and says that there was a retry.
 */

/** No program can have a mailbox of this name. */
export const mailbox = "duroxide-prisma/retry"

/** Event ids of requests. */
export const encode = (requests: ReadonlyArray<number>): string => JSON.stringify({ again: requests })

/** What stands in the history in place of removed events. */
export const removed = (first: number, last: number): string => JSON.stringify({ removed: [first, last] })

/** Empty for a text that is not of this module. */
export const decode = (data: string): ReadonlyArray<number> => {
  try {
    const { again } = JSON.parse(data)
    return Array.isArray(again) ? again.filter(Number.isSafeInteger) : []
  } catch {
    return []
  }
}
