import { assert, it } from "@effect/vitest"
import * as Docs from "../utils/docs.ts"

it("docs/writing-a-driver.md: its examples are how a driver of tasks compiles, and how the memory driver is tested", () => {
  const sources = ["test/types/drivers.ts", "test/provider/MemoryDriver.suite.test.ts"]
  const examples = Docs.blocks(Docs.read("docs/writing-a-driver.md"), "ts")
  assert.lengthOf(examples, sources.length)
  for (const [i, { code }] of examples.entries()) {
    assert.include(Docs.withoutIndentation(Docs.read(sources[i]!)), Docs.withoutIndentation(code))
  }
})
