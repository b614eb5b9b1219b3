import { assert, it } from "@effect/vitest"
import { SqsQueue } from "duroxide-prisma/queue/sqs"
import * as Layer from "effect/Layer"
import { maxDelayMs, mostOfBatch } from "../../src/queue/internal/sqsRequests.ts"
import { maxPayloadBytes } from "../../src/queue/shared/declarations.ts"
import * as Docs from "../utils/docs.ts"

const SqsLive = SqsQueue.layer({
  queues: {
    tasks: {},
    orders: { url: "https://sqs.eu-central-1.amazonaws.com/123456789012/shop-orders" }
  }
})

const text = Docs.section("docs/outbox.md", "Amazon SQS")

it("docs/outbox.md, Amazon SQS: its example is the one here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/sqs.test.ts"))
  const examples = Docs.blocks(text, "ts")
  assert.lengthOf(examples, 1)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code.replace(/^import .*\n+/gm, "")))
  assert.isTrue(Layer.isLayer(SqsLive))
})

it("docs/outbox.md, Amazon SQS: the policy allows what the code does, and no more", () => {
  const sources = ["src/queue/SqsQueue.ts", "src/queue/internal/sqsRequests.ts"].map(Docs.read).join("")
  const actions = new Set(
    [...sources.matchAll(/new (\w+?)(?:Batch)?Command\(/g)].map(([, action]) => `sqs:${action}`)
  )
  const [policy] = Docs.blocks(text, "json")
  const { Statement: [statement] } = JSON.parse(policy!.code) as { Statement: [{ Action: ReadonlyArray<string> }] }
  assert.sameMembers([...statement.Action, "sqs:CreateQueue", "sqs:SetQueueAttributes"], [...actions])
  for (const action of actions) assert.include(text, action)
})

it("docs/outbox.md, Amazon SQS: the limits are those of the code", () => {
  assert.include(text, `${maxDelayMs / 1000} seconds; through the outbox`)
  assert.include(text, `${maxPayloadBytes.toLocaleString("en")} bytes`)
  assert.include(text, `up to ${mostOfBatch} `)
})
