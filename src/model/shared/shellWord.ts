/**
 * Ids in commands that people paste into a shell. Clients choose ids, and may choose any text.
 */

/** The id as one argument of a command, behind all flags. */
export const shellWord = (id: string): string => {
  const word = /^[\w./:@+=,%-]+$/.test(id) ? id : `'${id.replaceAll("'", `'\\''`)}'`
  return id.startsWith("-") ? `-- ${word}` : word
}
