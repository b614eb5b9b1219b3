import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

/** The text of a file of the repository. */
export const read = (path: string): string =>
  readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)), "utf8")

/** The part of a page under a heading of the second level, without the list of references at the end of the page. */
export const section = (path: string, heading: string): string => {
  const parts = read(path).replace(/\n(\[\w+\]: \S+\n)+$/, "\n").split(/^(?=## )/m)
  const [found, ...more] = parts.filter((part) => part.startsWith(`## ${heading}\n`))
  if (found === undefined || more.length > 0) throw new Error(`${path}: ${more.length + 1} sections "${heading}"`)
  return found
}

/** The fenced blocks of a language in a page, with the heading each stands under; blocks of imports are left out. */
export const blocks = (page: string, language: string): ReadonlyArray<{ heading: string; code: string }> => {
  const found: Array<{ heading: string; code: string }> = []
  let heading = ""
  let code: Array<string> | undefined
  for (const line of page.split("\n")) {
    if (code === undefined && /^#+ /.test(line)) heading = line.replace(/^#+ /, "")
    else if (code === undefined && line === `\`\`\`${language}`) code = []
    else if (code !== undefined && line === "```") {
      if (code.some((line) => !line.startsWith("import "))) found.push({ heading, code: code.join("\n") })
      code = undefined
    } else code?.push(line)
  }
  return found
}

/** The address of files of the repository that are not in the package. */
export const repository = `${JSON.parse(read("package.json")).homepage.replace("#readme", "")}/blob/main/`

/** The files of the repository in a page's list of references, `[label]: link`, by label. */
export const references = (page: string): ReadonlyMap<string, string> =>
  new Map(
    [...page.matchAll(/^\[(\w+)\]: (\S+)$/gm)].flatMap(([, label, link]) =>
      link!.startsWith("../") || link!.startsWith(repository)
        ? [[label!, link!.replace(/^\.\.\//, "").replace(repository, "")] as const]
        : []
    )
  )

/** The targets of the links of a page, without those in code. */
export const links = (page: string): ReadonlyArray<string> => {
  const text = page.replace(/^```[\s\S]*?^```$/gm, "").replace(/`[^`\n]*`/g, "")
  return [...text.matchAll(/\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$/gm)].map(([, inline, listed]) => inline ?? listed!)
}

/** The anchors of a page's headings. */
export const anchors = (page: string): ReadonlyArray<string> =>
  [...page.matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    heading!.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "").replaceAll(" ", "-")
  )

/** A page with each paragraph and each item of a list on one line. */
export const unwrapped = (page: string): string => page.replace(/(?<=\S)\n *(?=[^\s|#[\-<])(?!```)/g, " ")

/** Code without the indentation of the place it stands in: what two places share. */
export const withoutIndentation = (code: string): string => code.replace(/^ +/gm, "").replace(/\n+/g, "\n").trim()
