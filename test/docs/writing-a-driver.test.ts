import { assert, it } from "@effect/vitest"
import * as Docs from "../utils/docs.ts"

it("docs/writing-a-driver.md: its example is how the memory driver is tested", () => {
  const test = Docs.withoutIndentation(Docs.read("test/provider/MemoryDriver.suite.test.ts"))
  const examples = Docs.blocks(Docs.read("docs/writing-a-driver.md"), "ts")
  assert.lengthOf(examples, 1)
  for (const { code } of examples) assert.include(test, Docs.withoutIndentation(code))
})
