/**
 * What tests of actions do with a page.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { Page } from "playwright-core"
import * as Chromium from "./chromium.ts"
import * as Hotel from "./hotel.ts"
import { Lobby } from "./lobby.ts"

/** Opens a page for an operator, and fails if the console of the browser complained. */
export const operating = (
  use: (page: Page, base: string) => Promise<void>,
  { look, token = Hotel.tokens.operate }: { readonly token?: string; readonly look?: Chromium.Look } = {}
) =>
  Effect.gen(function*() {
    const { base, browser } = yield* Lobby
    const { complaints, page } = yield* Chromium.open(browser, base, token, look)
    yield* Effect.promise(() => use(page, base)).pipe(
      // What a person would have seen.
      Effect.onError(() => Effect.promise(() => page.screenshot({ path: "build/pictures/failed.png" })))
    )
    assert.deepStrictEqual(complaints, [])
  }).pipe(Effect.scoped)

export const dialog = (page: Page) => page.getByRole("dialog")

export const act = async (page: Page, name: string) => {
  await page.locator("summary", { hasText: /^Actions/ }).first().click()
  await page.getByRole("button", { name }).click()
}

/** Types what a dangerous dialog asks for. */
export const confirm = async (page: Page, text: string, button: string | RegExp) => {
  await dialog(page).getByLabel(/^Type/).fill(text)
  await dialog(page).getByRole("button", { name: button }).click()
  await dialog(page).waitFor({ state: "detached" })
}
