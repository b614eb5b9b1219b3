import { assert, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import { cureOf } from "../../src/model/shared/cures.ts"
import { shellArgument, shellWord } from "../../src/model/shared/shellWord.ts"

it("an id of any characters is one argument of a command in a shell", () => {
  for (const id of ["order-17", "a b", "$(touch x)", "ex;touch x", "it's", "`id`", "\"", "~", "a\nb", "*", "é"]) {
    assert.strictEqual(execFileSync("sh", ["-c", `printf %s ${shellWord(id)}`], { encoding: "utf8" }), id)
  }
  assert.strictEqual(shellWord("shop/order-17"), "shop/order-17")
  assert.strictEqual(shellArgument("-x"), "-- -x")
  const block = { eventId: 4, problem: "", reason: "HistoryDiffers" } as const
  assert.match(cureOf(block, "-x"), /retry --from 3 -- -x$/)
  assert.match(cureOf(block, "it's"), /retry 'it'\\''s' --from 3$/)
})
