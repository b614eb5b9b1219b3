/**
 * Errors of models as they may be recorded.
 */
import { AiError } from "effect/ai"
import * as Schema from "effect/Schema"

/** The most characters of a text that an error quotes. */
const maxQuoted = 10_000

/**
 * An error without what belongs in no history: headers and bodies of HTTP, which may hold keys, the query of an
 * address, and causes. Long quotations are cut.
 */
export const harmless = (error: AiError.AiError): AiError.AiError =>
  new AiError.AiError({ module: error.module, method: error.method, reason: harmlessReason(error.reason) })

/** `harmless` for a reason, which handlers of tools may fail with. */
export const harmlessReason = (reason: AiError.AiErrorReason): AiError.AiErrorReason => {
  const fields: Record<string, unknown> = { ...encode(reason) }
  delete fields["http"]
  delete fields["cause"]
  if (typeof fields["url"] === "string") fields["url"] = fields["url"].replace(/[?#].*$/s, "")
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === "string" && value.length > maxQuoted) fields[name] = `${value.slice(0, maxQuoted)} …`
  }
  return decode(fields)
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const encode = Schema.encodeSync(AiError.AiErrorReason)
const decode = Schema.decodeUnknownSync(AiError.AiErrorReason)
