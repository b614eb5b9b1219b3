import { assert, describe, it } from "@effect/vitest"
import type { Instance } from "duroxide-prisma/provider"
import type { ProcessInfo } from "../../src/provider/AdminDriver.ts"
import { serversOfActivity, serversOfOrchestration } from "../../src/provider/shared/served.ts"

const process = (served: Partial<ProcessInfo>): ProcessInfo => ({
  id: "a0000000-0000-4000-8000-000000000000",
  build: "a1b2",
  host: "host-1",
  pid: 42,
  orchestrations: [],
  activities: [],
  tags: { _tag: "DefaultOnly" },
  orchestrationSlots: 16,
  activitySlots: 16,
  sinceMs: 0,
  seenMs: 0,
  isListening: true,
  isAlive: true,
  slotsInUse: null,
  ...served
})

describe("served", () => {
  it("an orchestration: by exactly its version, by a newer one, or by any", () => {
    const processes = [
      process({ orchestrations: ["Book@1.2.0", "Book@1.10.0", "a@b@1.0.0"] }),
      process({ orchestrations: ["Book@1.2.0"] }),
      process({ orchestrations: ["Book@3.0.0"], isAlive: false })
    ]
    const servers = (name: string, version: string | null) => serversOfOrchestration(processes, name, version)
    assert.deepStrictEqual(
      ["1.2.0", "1.10.0", "1.3.0", "3.0.0", ">=1.3.0", ">=1.2.0", ">=2.0.0", "unknown", null].map((version) =>
        servers("Book", version)
      ),
      [2, 1, 0, 0, 1, 2, 0, 2, 2]
    )
    assert.strictEqual(servers("a@b", "1.0.0"), 1)
    assert.strictEqual(servers("a", null), 0)
  })

  it("an activity: by its name and its tag", () => {
    const servers = (tags: Instance.TagFilter) =>
      [null, "gpu", "eu"].map((tag) => serversOfActivity([process({ activities: ["Mail"], tags })], "Mail", tag))
    assert.deepStrictEqual(servers({ _tag: "DefaultOnly" }), [1, 0, 0])
    assert.deepStrictEqual(servers({ _tag: "DefaultAnd", tags: ["gpu"] }), [1, 1, 0])
    assert.deepStrictEqual(servers({ _tag: "Tags", tags: ["gpu"] }), [0, 1, 0])
    assert.deepStrictEqual(servers({ _tag: "Any" }), [1, 1, 1])
    assert.deepStrictEqual(servers({ _tag: "None" }), [0, 0, 0])
    assert.strictEqual(serversOfActivity([process({})], "Mail", null), 0)
  })
})
