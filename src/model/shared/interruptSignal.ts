/**
 * How an interruption reaches its instance: a reserved signal, which Duroxide keeps and no program takes.
 */

/** No program can define a signal of this name. */
export const name = "duroxide-prisma/interrupt"

/** The reason in the history for a child that is interrupted and whose end is waited for. */
export const ofChild = "interrupted"

export const encode = (reason: string): string => JSON.stringify({ reason })

/** The reason of the termination that is the deadline of an interruption. */
export const pastDeadline = (reason: string): string => `${reason} (past its deadline)`

export const isPastDeadline = (reason: string): boolean => reason.endsWith(pastDeadline(""))

/** The reason. */
export const decode = (data: string): string => {
  try {
    const { reason } = JSON.parse(data)
    return typeof reason === "string" ? reason : ""
  } catch {
    return ""
  }
}
