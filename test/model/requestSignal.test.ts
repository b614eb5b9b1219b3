import { assert, describe, it } from "@effect/vitest"
import * as requestSignal from "../../src/model/shared/requestSignal.ts"

const answers = (count: number, setAtMs: (i: number) => number) =>
  new Map(Array.from({ length: count }, (_, i) => [requestSignal.answerKey(`r${i}`), setAtMs(i)] as const))

describe("requestSignal.outdated", () => {
  const { keptAnswers, keptMs, mostAnswers, outdated } = requestSignal
  const nowMs = 1_000_000

  it("keeps the newest, however old they are", () => {
    assert.deepStrictEqual(outdated(answers(keptAnswers, () => 0), nowMs), [])
    const one = outdated(answers(keptAnswers + 1, (i) => i), nowMs)
    assert.deepStrictEqual(one, [requestSignal.answerKey("r0")])
  })

  it("keeps those of the last minute, up to a number", () => {
    assert.deepStrictEqual(outdated(answers(mostAnswers, () => nowMs - keptMs), nowMs), [])
    assert.lengthOf(outdated(answers(mostAnswers + 2, () => nowMs), nowMs), 2)
    const mixed = outdated(answers(keptAnswers + 3, (i) => i < 2 ? 0 : nowMs), nowMs)
    assert.deepStrictEqual(mixed, [requestSignal.answerKey("r0"), requestSignal.answerKey("r1")])
  })

  it("leaves other values alone", () => {
    const own = new Map([["own", 0], ...answers(keptAnswers, () => 0)])
    assert.deepStrictEqual(outdated(own, nowMs), [])
  })
})

describe("requestSignal.decodeAnswer", () => {
  it("reads what encodeAnswer writes", () => {
    for (
      const answer of [
        { _tag: "Success", value: "null" },
        { _tag: "Refused", error: "{\"a\":1}", isRejected: false },
        { _tag: "Refused", error: "null", isRejected: true },
        { _tag: "Failed", problem: "it \"died\"", isRejected: false }
      ] as const
    ) assert.deepStrictEqual(requestSignal.decodeAnswer(requestSignal.encodeAnswer(answer)), answer)
    assert.strictEqual(requestSignal.decodeAnswer("no JSON")._tag, "Failed")
  })
})
