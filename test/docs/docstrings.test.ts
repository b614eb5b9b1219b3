import { assert, it } from "@effect/vitest"
import { readdirSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as Docs from "../utils/docs.ts"

const root = fileURLToPath(new URL("../../src/", import.meta.url))
const modules = readdirSync(root, { recursive: true, encoding: "utf8" })
  .filter((path) => path.endsWith(".ts") && !path.includes("generated"))

it("docstrings: what is public begins with a sentence of its own, above sections and tags", () => {
  const blocks = modules.flatMap((path) =>
    [...Docs.read(`src/${path}`).matchAll(/^\/\*\*\n((?: \*.*\n)+?) \*\/\n(.*)/gm)]
      .filter(([, text]) => text!.includes(" * @category "))
      .map(([, text, declared]) => ({ place: `${path}: ${declared}`, first: text!.split("\n")[0]! }))
  )
  assert.isAbove(blocks.length, 150)
  assert.deepStrictEqual(blocks.filter(({ first }) => !/^ \* [A-Z`\d]/.test(first)).map(({ place }) => place), [])
})
