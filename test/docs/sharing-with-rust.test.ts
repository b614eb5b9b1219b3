import { assert, it } from "@effect/vitest"
import * as Docs from "../utils/docs.ts"

it("docs/sharing-with-rust.md: how it starts an orchestration of Rust is what test/rust runs", () => {
  const examples = Docs.blocks(Docs.read("docs/sharing-with-rust.md"), "ts")
  const [start] = examples.filter(({ heading }) => heading.startsWith("Starts"))
  assert.include(Docs.withoutIndentation(Docs.read("test/rust/clients.check.ts")).replaceAll("Ours.", ""), start!.code)
})
