/**
 * How the end of a task reaches the orchestration that calls it: an activity creates the task, and its end arrives in a
 * signal of the call, which is sent once and awaited once.
 */

/** Activities that create the task of a call. A task may end before the activity that has created it. */
export const createTask = "duroxide-prisma/CreateTask"
export const runTask = "duroxide-prisma/RunTask"

export const cancelTask = "duroxide-prisma/CancelTask"

/** The signal of a call; `call` is unique. */
export const nameOf = (call: string): string => `${prefix}${call}`

/** The call of a signal. */
export const callOf = (signal: string): string => signal.slice(prefix.length)

/** Whether the signal is that of a task without a key, whose id it contains. */
export const isOfOneCall = (signal: string): boolean => isName(signal) && callOf(signal).includes("-")

export const isName = (name: string): boolean => name.startsWith(prefix)

export const creates = (activity: string): boolean => activity === createTask || activity === runTask

/** The name of the task that such an activity creates; undefined if its input cannot be read. */
export const taskOf = (input: string): string | undefined => {
  const name = fieldOf(input, "name")
  return typeof name === "string" ? name : undefined
}

/** The signal that the call waits for, by the result of such an activity; undefined if it has the end itself. */
export const signalIn = (result: string): string | undefined => {
  const value = parsed(result)
  if (typeof value === "string") return nameOf(value)
  const signal = field(value, "signal")
  return typeof signal === "string" ? signal : undefined
}

/** Whether the text is the end of a task that has not completed. */
export const isFailedEnd = (text: string): boolean => {
  const status = field(parsed(text), "status")
  return typeof status === "string" && status !== "Completed"
}

/** The field of a JSON object; undefined if the text cannot be read. */
export const fieldOf = (text: string, name: string): unknown => field(parsed(text), name)

// internal

const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const field = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined

const prefix = "duroxide-prisma/task/"
