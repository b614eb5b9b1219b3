/**
 * Chunks of a stream as the page shows them.
 */
import { assert, it } from "@effect/vitest"
import { segmentsOf } from "../../ui/src/views/instance/chunks.ts"

const chunk = (offset: number, value: unknown, event: number | null = null, startsOver = false) => ({
  offset,
  appendedAtMs: 0,
  executionId: 1,
  event,
  startsOver,
  chunk: JSON.stringify(value)
})

it("texts follow each other, and a try that begins anew begins a text of its own", () => {
  assert.deepStrictEqual(
    segmentsOf([
      chunk(0, "Think"),
      chunk(1, "ing.\n"),
      chunk(2, "Hel", 4, true),
      chunk(3, "Hel", 4, true),
      chunk(4, "lo", 4),
      chunk(5, "!", 9, true)
    ]),
    [
      { offset: 0, text: "Thinking.\nHel", why: null },
      { offset: 3, text: "Hello!", why: "The activity of event 4 begins anew." }
    ]
  )
})

it("other JSON, and chunks that are kept from the caller, are no text", () => {
  assert.isUndefined(segmentsOf([chunk(0, "a"), chunk(1, { b: 1 })]))
  assert.isUndefined(segmentsOf([{ ...chunk(0, "a"), chunk: null }]))
  assert.deepStrictEqual(segmentsOf([]), [])
})
