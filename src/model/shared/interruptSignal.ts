/**
 * How an interruption reaches its instance: a reserved signal, which Duroxide keeps and no program takes.
 */

/** No program can define a signal of this name. */
export const name = "duroxide-prisma/interrupt"

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
