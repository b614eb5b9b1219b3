/**
 * How an interruption reaches its instance: a message of a reserved mailbox, which Duroxide keeps and never reads.
 */

/** No program can have a mailbox of this name. */
export const mailbox = "duroxide-prisma/interrupt"

export const encode = (reason: string): string => JSON.stringify({ reason })

/** The reason. */
export const decode = (data: string): string => {
  try {
    const { reason } = JSON.parse(data)
    return typeof reason === "string" ? reason : ""
  } catch {
    return ""
  }
}
