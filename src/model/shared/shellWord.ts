/**
 * Texts in commands that people paste into a shell. Clients choose ids, and may choose any text.
 */

/** The text as one word. */
export const shellWord = (text: string): string =>
  /^[\w./:@+=,%-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`

/** The id as the argument of a command, behind all flags. */
export const shellArgument = (id: string): string => `${id.startsWith("-") ? "-- " : ""}${shellWord(id)}`
