/**
 * Which texts PostgreSQL and Rust can store: no NUL, no lone surrogates.
 */

/** A text or another value that is not valid for its purpose. */
export interface Unfit {
  readonly _tag: "Unfit"
  readonly field: string
  readonly problem: string
}

/** Why the text cannot be stored, or undefined when it can. */
export const problemOf = (text: string): string | undefined =>
  text.includes("\0")
    ? "it holds a NUL character (U+0000), which PostgreSQL cannot store"
    : isWellFormed(text)
    ? undefined
    : "it holds half of a surrogate pair, which is not valid Unicode text"

/** The text with unstorable characters replaced: for error messages, never for payloads. */
export const replaceUnstorable = (text: string): string => text.replace(/[\0\ud800-\udfff]/gu, "\ufffd")

// With the `u` flag a class of surrogates matches lone ones only.
const isWellFormed = (text: string) => !/[\ud800-\udfff]/u.test(text)
