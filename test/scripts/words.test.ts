import { afterAll, assert, describe, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const script = fileURLToPath(new URL("../../scripts/words.mjs", import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), "words-"))
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

/** Runs the check on a tree of the given files; an empty answer means that it passed. */
const check = (files: Record<string, string>): ReadonlyArray<string> => {
  const root = mkdtempSync(join(scratch, "tree-"))
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  const { status, stderr } = spawnSync(process.execPath, [script, root], { encoding: "utf8" })
  const breaches = stderr.split("\n").filter((line) => line !== "")
  assert.strictEqual(status, breaches.length === 0 ? 0 : 1)
  return breaches
}

describe("words", () => {
  const refused: ReadonlyArray<readonly [where: string, path: string, text: string, breach: string]> = [
    ["a comment", "src/a.ts", "// one\n// The store is away.", "src/a.ts:2: \"is away\""],
    ["a docstring", "src/a.ts", "/** Nobody waits. */", "src/a.ts:1: \"Nobody\""],
    ["a message", "src/a.ts", "const text = `${id} hears of it`", "src/a.ts:1: \"hears of\""],
    ["a test name", "test/a.test.ts", "it(\"the parent is told\", run)", "test/a.test.ts:1: \"told\""],
    ["a guide", "docs/a.md", "An activity without a worker waits for ever.", "docs/a.md:1: \"for ever\""],
    [
      "the head of a function",
      "prisma/functions/a.sql",
      "-- Nothing of it is stored.",
      "prisma/functions/a.sql:1: \"Nothing of\""
    ],
    ["the schema", "prisma/schema.prisma", "/// A version that is none.", "prisma/schema.prisma:1: \"is none\""],
    ["a script", "scripts/a.mjs", "// Runs a command to its end.", "scripts/a.mjs:1: \"to its end\""]
  ]
  for (const [where, path, text, breach] of refused) {
    it(`check: refuses a phrase in ${where}, with file and line`, () => {
      const [found, ...more] = check({ [path]: text })
      assert.isTrue(found?.startsWith(`${breach}: write `), found)
      assert.deepStrictEqual(more, [])
    })
  }

  const divided: ReadonlyArray<readonly [promise: string, path: string, text: string]> = [
    ["a line comment", "src/a.ts", "  // It waits for\n  // ever."],
    ["a docstring", "src/a.ts", "/**\n * It waits for\n * ever.\n */"],
    ["a comment of SQL", "prisma/functions/a.sql", "-- It waits for\n-- ever."],
    ["a paragraph", "docs/a.md", "It waits for\never."],
    ["a string", "src/a.ts", "const text = \"it waits for \" +\n  \"ever\""]
  ]
  for (const [where, path, text] of divided) {
    it(`check: finds a phrase that a line break divides in ${where}`, () => {
      assert.strictEqual(check({ [path]: text }).length, 1)
    })
  }

  const comments: ReadonlyArray<readonly [what: string, text: string, breach: string]> = [
    ["a line of a comment beyond 120 columns", `// ${"word ".repeat(24)}`, "src/a.ts:1: \"// word"],
    ["a docstring without a noun of its own", "/**\n * Of one queue.\n */", "src/a.ts:1: \"Of\""],
    ["a docstring that begins with `The same`", "/** The same, in order. */", "src/a.ts:1: \"The same\""],
    ["a docstring that sends the reader to another one", "/** As `read`, in order. */", "src/a.ts:1: \"As `\""],
    ["a docstring whose noun is elsewhere", "/** Its token. */", "src/a.ts:1: \"Its token.\""],
    ["a docstring that denies a noun", "/** Times that\n * are no numbers. */", "src/a.ts:1: \"are no\""]
  ]
  for (const [what, text, breach] of comments) {
    it(`check: refuses ${what} in code`, () => {
      const code = ["src/a.ts", "scripts/a.mjs", "test/a.ts"]
      const found = check(Object.fromEntries([...code, "examples/a.ts"].map((path) => [path, text])))
      assert.deepStrictEqual(
        code.filter((path) => found.some((line) => line.startsWith(breach.replace("src/a.ts", path)))),
        code
      )
      assert.strictEqual(found.length, code.length)
    })
  }

  it("check: lets good English pass", () => {
    const text = [
      "A process reads any more rows it finds, and there is none that it skips.",
      "The child is no longer running; there is no parent. Its status is kept up to date.",
      "`nobodyKnows` and `toldAt` are names."
    ]
    assert.deepStrictEqual(check({ "docs/a.md": text.join("\n") }), [])
    const docstring = "/** Often called. Locks are no longer held, and there is no task. */"
    assert.deepStrictEqual(check({ "src/a.ts": docstring }), [])
  })

  it("check: leaves out what is installed, built or recorded", () => {
    const text = "// It waits for ever."
    assert.deepStrictEqual(
      check({
        "node_modules/a/index.ts": text,
        "build/a.ts": text,
        "dist/a.ts": text,
        ".hidden/a.ts": text,
        "src/prisma/generated/a.ts": text,
        "src/prisma/internal/migrations.generated.ts": text,
        "prisma/migrations/20260101000000_create/migration.sql": "-- It waits for ever.",
        "test/recordings/duroxide/a.json": "\"for ever\""
      }),
      []
    )
  })
})
