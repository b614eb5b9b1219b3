import { assert, describe, it } from "@effect/vitest"
import * as Docs from "../utils/docs.ts"

describe("README.md", () => {
  it("the main program of a worker is that of examples/orders", () => {
    const example = Docs.read("examples/orders/worker.ts")
    const code = Docs.blocks(Docs.read("README.md"), "ts").find(({ heading }) => heading === "Run")?.code ?? ""
    const [imports, main] = code.split("\n\nconst main")
    assert.include(imports, `import { Runtime } from "duroxide-prisma"`)
    assert.isDefined(main)
    for (const line of `const main${main}`.split("\n")) assert.include(example, line)
  })
})
