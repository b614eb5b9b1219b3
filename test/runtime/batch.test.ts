import { assert, describe, it } from "@effect/vitest"
import * as Option from "effect/Option"
import * as ErrorDetails from "../../src/model/ErrorDetails.ts"
import type * as WorkItem from "../../src/model/WorkItem.ts"
import type { OrchestrationItem } from "../../src/provider/Provider.ts"
import * as batches from "../../src/runtime/batch.ts"

describe("batch", () => {
  const item = (...messages: ReadonlyArray<WorkItem.WorkItem>): OrchestrationItem => ({
    instanceId: "c",
    orchestrationName: "C",
    orchestrationVersion: "unknown",
    executionId: 1,
    nowMs: 0,
    history: [],
    isKnownHistory: false,
    historyError: Option.none(),
    enqueuedAtMs: messages.map(() => 0),
    messageIds: messages.map((_, index) => index),
    messages,
    keyValues: new Map()
  })
  const start = (parentInstance: string | null, parentId = 2): WorkItem.Of<"StartOrchestration"> => ({
    _tag: "StartOrchestration",
    instance: "c",
    orchestration: "C",
    input: "null",
    version: null,
    parentInstance,
    parentId: parentInstance === null ? null : parentId,
    ...(parentInstance !== null && { parentExecutionId: 1 }),
    executionId: 1
  })

  it("batch: a timer arrives when it is due, wherever it stands in the queue", () => {
    const timer = (
      id: number,
      fireAtMs: number
    ) => ({ _tag: "TimerFired", instance: "c", executionId: 1, id, fireAtMs } as const)
    const signal = (name: string) => ({ _tag: "ExternalRaised", instance: "c", name, data: "null" } as const)
    const read = batches.read({
      ...item(
        start(null),
        timer(2, 60),
        timer(3, 30),
        signal("at 29"),
        signal("at 59"),
        timer(4, 200),
        signal("at 100")
      ),
      enqueuedAtMs: [0, 0, 0, 29, 59, 59, 100]
    })
    assert.deepStrictEqual(
      read._tag === "Run" &&
        read.messages.map((message) => "id" in message ? message.id : "name" in message && message.name),
      ["at 29", 3, "at 59", 2, "at 100", 4]
    )
  })

  it("batch: if two parents start a child under one id at once, the second is notified that the id is taken", () => {
    const read = batches.read(item(start("p"), start("q"), start("p"), start(null)))
    if (read._tag !== "Run") return assert.fail(read._tag)
    assert.strictEqual(read.started.parentInstance, "p")
    assert.deepStrictEqual(read.rejections, [{
      _tag: "SubOrchFailed",
      parentInstance: "q",
      parentExecutionId: 1,
      parentId: 2,
      details: ErrorDetails.application(
        "Panicked",
        "sub-orchestration instance id 'c' already exists and is running"
      )
    }])
  })
})
