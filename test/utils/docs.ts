import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

/** The text of a file of the repository. */
export const read = (path: string): string =>
  readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)), "utf8")

/** The fenced blocks of a language in a page, with the heading each stands under. */
export const blocks = (page: string, language: string): ReadonlyArray<{ heading: string; code: string }> => {
  const found: Array<{ heading: string; code: string }> = []
  let heading = ""
  let code: Array<string> | undefined
  for (const line of page.split("\n")) {
    if (code === undefined && /^#+ /.test(line)) heading = line.replace(/^#+ /, "")
    else if (code === undefined && line === `\`\`\`${language}`) code = []
    else if (code !== undefined && line === "```") {
      found.push({ heading, code: code.join("\n") })
      code = undefined
    } else code?.push(line)
  }
  return found
}

/** Code without the indentation of the place it stands in: what two places share. */
export const withoutIndentation = (code: string): string => code.replace(/^ +/gm, "").replace(/\n+/g, "\n").trim()
