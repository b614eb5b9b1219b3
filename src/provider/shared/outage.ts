/**
 * Distinguishes an outage of what a handler needs from a bug of the handler.
 */
import * as Predicate from "effect/Predicate"
import { describe } from "../../model/shared/defect.ts"
import { errorTypeOf } from "../../model/shared/errorType.ts"
import { classify } from "../SqlFault.ts"

export interface Outage {
  readonly problem: string
  /** For logs. */
  readonly errorType: string
}

/**
 * The outage that a defect reports, itself or by its causes: an error that says so (`isRetryable`, as those of this
 * package and of Effect's SQL clients), one of PostgreSQL, `pg` or Prisma after which the same statement may succeed,
 * or one of a network.
 */
export const outageIn = (defect: unknown): Outage | undefined => firstOf(defect, outageOf)

/** Whether the server or the way to it has failed, and nothing that was asked of it. */
export const isOutage = (defect: unknown): boolean =>
  firstOf(defect, (error) => {
    const reason = classify(error)
    return reason._tag === "ConnectionLost" ||
        reason._tag === "Unavailable" && reason.sqlState !== null && /^(57P|53)|25006/.test(reason.sqlState)
      ? true
      : undefined
  }) === true

// internal

/** They may be each other's causes. */
const mostErrors = 20

/** What is found of a defect or of one of its causes. */
const firstOf = <A>(defect: unknown, find: (error: object) => A | undefined): A | undefined => {
  const errors = [defect]
  for (let i = 0; i < Math.min(errors.length, mostErrors); i++) {
    const error = errors[i]
    if (!Predicate.isObject(error)) continue
    const found = find(error)
    if (found !== undefined) return found
    const { cause, errors: several } = error as { readonly cause?: unknown; readonly errors?: unknown }
    errors.push(cause, ...(Array.isArray(several) ? several.slice(0, mostErrors) : []))
  }
  return undefined
}

const outageOf = (error: object): Outage | undefined => {
  const { code, errorCode = code, isRetryable } = error as Readonly<Record<string, unknown>>
  if (isRetryable === true) return { problem: describe(error).message, errorType: errorTypeOf(error) }
  if (typeof errorCode === "string" && codes.has(errorCode)) {
    return { problem: `${describe(error).message} (${errorCode})`, errorType: errorCode }
  }
  // Other codes of this kind may come from a file system: not an outage.
  if (typeof code === "string" && /^E[A-Z]/.test(code)) return undefined
  const reason = classify(error)
  return reason.isRetryable ? { problem: reason.message, errorType: reason._tag } : undefined
}

/** Codes of sockets, of name resolution, of `fetch` in Node, and of Prisma when it does not reach the database. */
const codes: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "ECONNABORTED",
  "EPIPE",
  "ETIMEDOUT",
  "EHOSTDOWN",
  "EHOSTUNREACH",
  "ENETDOWN",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
  "UND_ERR_SOCKET",
  "P1001",
  "P1002",
  "P1008",
  "P1017",
  "P2024"
])
