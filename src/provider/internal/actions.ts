/**
 * The record of what operators did.
 */
import * as Effect from "effect/Effect"
import type { Admin } from "../Admin.ts"
import type { ActionOutcome, AdminDriver } from "../AdminDriver.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"

export const actions = (
  driver: Pick<AdminDriver["Service"], "recordAction" | "listActions">
): Pick<Admin["Service"], "recordAction" | "listActions"> => ({
  recordAction: ({ action, actor, details, outcome, target }) =>
    checked("recordAction", [
      check.text("actor", actor),
      check.text("action", action),
      check.text("target", target),
      check.text("details", details),
      check.oneOf("outcome", outcome, outcomes)
    ], () =>
      driver.recordAction({
        actor: cut(actor, longest.actor),
        action: cut(action, longest.action),
        target: cut(target, longest.target),
        details: cut(details, longest.details),
        outcome
      })),

  listActions: ({ cursor, limit = 100 } = {}) =>
    checked(
      "listActions",
      [
        cursor === undefined || isId(cursor) ? undefined : ["cursor", "it is not one of a list of actions"],
        check.whole("limit", limit, 1, longestPage)
      ],
      () =>
        Effect.map(driver.listActions({ before: cursor ?? null, limit: limit + 1 }), (found) => {
          const page = found.slice(0, limit)
          return { actions: page, next: found.length > limit ? page.at(-1)!.id : null }
        })
    )
})

// internal

const longest = { actor: 256, action: 64, target: 2000, details: 2000 }

const longestPage = 1000

const outcomes: ReadonlyArray<ActionOutcome> = ["done", "refused", "failed"]

/** Whether it is a number of 64 bits from 0. */
const isId = (text: string) => /^\d{1,19}$/.test(text) && BigInt(text) < 2n ** 63n

/** Its first characters, without half of a surrogate pair at the end. */
const cut = (text: string, most: number) => text.slice(0, most).replace(/[\uD800-\uDBFF]$/, "")
