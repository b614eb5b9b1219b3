/**
 * What `COPY . .` of a Dockerfile leaves out: the patterns of its ignore file, as Docker reads them.
 */

/**
 * Whether a path, relative to the folder that is sent, is left out: by a pattern, or with one of the folders it is in.
 */
export const reader = (ignoreFile: string) => {
  const patterns = ignoreFile.split("\n").map((line) => line.trim()).filter((line) => line !== "" && line[0] !== "#")
  if (patterns.some((pattern) => /[!?[\\]/.test(pattern))) throw new RangeError("only *, ** and names are read here")
  const expressions = patterns.map((pattern) =>
    new RegExp(
      `^${
        pattern.replace(/^\/|\/$/g, "").replace(/[.+^${}()|]/g, "\\$&").replace(
          /\*\*\/|\*+/g,
          (stars) => stars === "**/" ? "(?:.*/)?" : stars === "*" ? "[^/]*" : ".*"
        )
      }(?:/|$)`
    )
  )
  return (path: string): boolean => expressions.some((expression) => expression.test(path))
}
