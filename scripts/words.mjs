// Checks the English of comments, docs, messages and test names: a list of phrases that most readers stumble over, each
// with what to write instead. A phrase belongs in the list when it is wrong almost everywhere; a place where it is right
// belongs in `exceptions`.
//
// `node scripts/words.mjs [directory]` prints each phrase it finds and exits with 1 when there is one. Names in code
// count as text, and a phrase is also found when a line break, or the start of the next line of a comment, divides it.
//
// In code and in SQL it also checks how comments are set: a line of a comment ends at 120 columns, and a docstring
// begins with its own noun or verb and does not say "are no".

import { readdirSync, readFileSync } from "node:fs"
import { join, resolve } from "node:path/posix"

/** Each phrase as a regular expression, in which a space stands for any gap between two words; and what to write. */
const phrases = [
  ["nobody", `name it ("no process", "no caller"), or "no one" for people`],
  ["somebody|anybody", `name it ("another session", "a caller"), or "someone" for people`],
  ["everybody", `name them ("all callers")`],
  ["told|tells", `"notified", "receives", "says", "states"; "distinguished" for "told apart"`],
  ["for ever", `"forever" or "indefinitely"`],
  ["(?:go|goes|going|gone|went) on", `"continues", "resumes", "keeps …ing"`],
  ["without end", `"forever", "indefinitely", "endless" or "unbounded"`],
  ["to (?:its|their) end", `"until it ends" or "to completion"`],
  ["(?:hear|hears|heard) (?:of|nothing)", `"is notified of", "learns of", "receives"`],
  ["(?<!there )(?:is|are) none", `"is not one", "is not a version", "is missing"`],
  ["(?<!there )is no (?!longer|more|less|different)", `"is not a …"`],
  ["the reference", `"Duroxide"`],
  ["any more(?= ?(?:[^\\w\\s]|because|when|and|but|$))", `"no longer" or "any longer"`],
  ["all the same", `"anyway" or "nevertheless"`],
  ["becomes of", `"happens to"`],
  ["(?:let|lets|letting) go of", `"releases", "drops" or "abandons"`],
  ["kept up(?! to)", `"maintained" or "kept current"`],
  ["belongs? into", `"belongs in"`],
  ["(?:for|after) so long", `"for that long", "after this time"`],
  ["so (?:often|long) as", `"as often as", "as long as"`],
  ["nothing of", `"none of the …", or a verb: "does not query the store"`],
  ["comes of", `"results from"`],
  ["(?:is|are|was|were|be) away", `"is unavailable" or "is unreachable"`],
  ["whoever", `name it ("another process", "the second call")`],
  ["in vain", `"without effect", "for nothing"`],
  ["for want of", `"without"`],
  ["(?:come|comes|came) to nothing", `"fails", "has no effect"`]
]

/** Places where a phrase is right: path, phrase, and why. */
const exceptions = [
  ["src/server/internal/embeddedPostgres.ts", "nobody", "an account of the operating system"],
  ["src/server/DatabaseServer.ts", "nobody", "the same"],
  ["test/recordings/programs/ours.ts", "any more", "a recorded text"],
  ["test/recordings/programs/ours.ts", "nobody", "a recorded text"]
]

/** Not ours to word: installed, built or recorded; migrations are built from `prisma/functions`, or applied already. */
const skipped = /^(?:(?:.*\/)?node_modules|build|dist|\..*|prisma\/migrations|.*\/generated|.*\.generated\.ts)$/
const own = new Set(["scripts/words.mjs", "test/scripts/words.test.ts"])

const root = resolve(process.argv[2] ?? ".")
const files = listFiles("").filter((file) => !own.has(file))
const breaches = [
  ...files.flatMap(phrasesOf),
  ...files.filter((file) => /^(?:src|scripts|test)\/.*\.(?:ts|mjs)$|\.sql$/.test(file)).flatMap(commentsOf)
]
for (const { file, instead, line, phrase } of breaches) console.error(`${file}:${line}: "${phrase}": write ${instead}`)
console.log(breaches.length === 0 ? "Words: none of the list." : `Words: ${breaches.length} to rewrite.`)
process.exitCode = breaches.length === 0 ? 0 : 1

// -----------------------------------------------------------------------------
// reading
// -----------------------------------------------------------------------------

function phrasesOf(file) {
  const text = readFileSync(join(root, file), "utf8")
  return phrases.flatMap(([phrase, instead]) =>
    [...text.matchAll(expression(phrase))].flatMap((match) => {
      const plain = match[0].replace(/\s*\n[\s*/>#|-]*/g, " ")
      if (exceptions.some(([path, word]) => path === file && plain.toLowerCase().startsWith(word))) return []
      return [{ file, line: text.slice(0, match.index).split("\n").length, phrase: plain, instead }]
    })
  )
}

/** Lines of comments that are too long, and docstrings that lean on the sentence before them or deny a noun. */
function commentsOf(file) {
  const text = readFileSync(join(root, file), "utf8")
  const lines = text.split("\n").flatMap((line, index) =>
    line.length > 120 && /^\s*(?:\/\*|\*|\/\/|-- )/.test(line)
      ? [{ file, line: index + 1, phrase: `${line.trim().slice(0, 40)}…`, instead: "a comment of at most 120 columns" }]
      : []
  )
  const docstrings = [...text.matchAll(/\/\*\*(.*?)\*\//gs)].flatMap(({ 1: body, index }) => {
    const sentence = body.replace(/\n\s*\* ?/g, " ").trim()
    const line = text.slice(0, index).split("\n").length
    const [start] =
      /^(?:(?:Those of|That of|The same|Of)\b|As (?:`|in\b|it\b|that\b|the\b|given\b)|(?:Its|Their) \w+\.)/.exec(
        sentence
      ) ?? []
    const [denied] = /\bare no(?! (?:longer|more|less|different)\b)\b/.exec(sentence.replace(/`[^`]*`/g, "``")) ?? []
    return [
      ...start === undefined ? [] : [{ file, line, phrase: start, instead: "a noun or a verb of its own first" }],
      ...denied === undefined ? [] : [{ file, line, phrase: denied, instead: `"are not …", or what there is` }]
    ]
  })
  return [...lines, ...docstrings]
}

function expression(phrase) {
  const gap = String.raw`(?:[ \t]*["'\`]? ?\+?\r?\n[ \t]*(?:\/\/\/?|\*|--|>|#|["'\`])?[ \t]*| )`
  const [words, after = ""] = phrase.split(/(?=\(\?=)/)
  return new RegExp(String.raw`\b(?:${words.replaceAll(" ", gap)})${after === "" ? String.raw`\b` : after}`, "gim")
}

function listFiles(folder) {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = folder === "" ? entry.name : `${folder}/${entry.name}`
    if (skipped.test(path)) return []
    if (entry.isDirectory()) return listFiles(path)
    return /\.(?:ts|mjs|sql|md|prisma)$/.test(entry.name) ? [path] : []
  })
}
