/**
 * How the end of a task reaches the orchestration that calls it: an activity creates the task, and its end arrives in a
 * signal of the call, which is sent once and awaited once.
 */

/** Activities that create the task of a call. A task may end before the activity that has created it. */
export const createTask = "duroxide-prisma/CreateTask"
export const runTask = "duroxide-prisma/RunTask"

/** The signal of a call; `call` is unique. */
export const nameOf = (call: string): string => `${prefix}${call}`

export const isName = (name: string): boolean => name.startsWith(prefix)

export const creates = (activity: string): boolean => activity === createTask || activity === runTask

/** The name of the task that such an activity creates; undefined if its input cannot be read. */
export const taskOf = (input: string): string | undefined => {
  try {
    const { name } = JSON.parse(input)
    return typeof name === "string" ? name : undefined
  } catch {
    return undefined
  }
}

// internal

const prefix = "duroxide-prisma/task/"
