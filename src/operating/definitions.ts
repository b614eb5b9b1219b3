/**
 * Definitions as people write them.
 */

/** Name and version of a definition; the version follows the last @. */
export const parseDefinition = (text: string): { readonly name: string; readonly version?: string } => {
  const at = text.lastIndexOf("@")
  return at <= 0 ? { name: text } : { name: text.slice(0, at), version: text.slice(at + 1) }
}
