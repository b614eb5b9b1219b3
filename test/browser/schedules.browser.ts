/**
 * Schedules by clicks and keys.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Chromium from "./chromium.ts"
import * as Hotel from "./hotel.ts"
import { layer, Lobby } from "./lobby.ts"
import { act, confirm, dialog, operating } from "./operating.ts"

const schedule = (name: string) => `#/schedules/${encodeURIComponent(name)}`

it.layer(layer, { excludeTestServices: true, timeout: "5 minutes" })("schedules in a browser", (it) => {
  it.effect("a run by hand is seen from the request to the end of what it starts, without being loaded again", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, base + schedule("clean-rooms"))
      const runs = page.getByRole("table").last().getByRole("row")
      const before = await runs.count()
      await act(page, "Run now…")
      await dialog(page).getByRole("button", { name: "Run now" }).click()
      await dialog(page).waitFor({ state: "detached" })
      await runs.nth(before).waitFor()
      const newest = runs.nth(1)
      await newest.getByText("Completed").waitFor()
      await newest.getByRole("link").click()
      await page.getByRole("heading", { name: /^schedule\/clean-rooms\/now\// }).waitFor()
    }))

  it.effect("a run that starts a task leads to it", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, base + schedule("monthly-invoices"))
      await page.getByRole("table").last().getByRole("link").first().click()
      await page.getByRole("heading", { name: "One task" }).waitFor()
      await page.getByText(/^key schedule\/monthly-invoices/).waitFor()
    }))

  it.effect("the list pauses one with a reason, and resumes it", () =>
    Effect.gen(function*() {
      yield* operating(async (page, base) => {
        await Chromium.visit(page, `${base}#/schedules`)
        await page.getByRole("button", { name: /^Pause…\s*clean-rooms/ }).click()
        await dialog(page).getByLabel("Reason").fill("the hotel is closed")
        await dialog(page).getByRole("button", { name: "Pause" }).click()
        await dialog(page).waitFor({ state: "detached" })
        await page.getByRole("link", { name: "clean-rooms", exact: true }).first().click()
        await page.getByText(/the hotel is closed/).waitFor()
        await page.getByText("None while it is paused.").waitFor()
        await act(page, "Resume…")
        await dialog(page).getByRole("button", { name: "Resume" }).click()
        await page.getByText("None while it is paused.").waitFor({ state: "detached" })
        await page.goto(`${base}#/audit-log`)
        await page.getByText("the hotel is closed").waitFor()
        await page.getByRole("link", { name: "clean-rooms" }).first().click()
        await page.getByRole("heading", { name: "clean-rooms" }).waitFor()
      })
      const { schedules } = yield* Lobby
      assert.isUndefined(Option.getOrThrow(yield* schedules.get("clean-rooms")).pause)
    }))

  it.effect("occurrences that have passed are counted, and started when the number is typed", () =>
    Effect.gen(function*() {
      const { schedules } = yield* Lobby
      yield* operating(async (page, base) => {
        await Chromium.visit(page, base + schedule("clean-rooms"))
        await act(page, "Backfill…")
        await dialog(page).getByLabel("From").fill("yesterday")
        await dialog(page).getByText("Write a time.").waitFor()
        assert.isTrue(await dialog(page).getByRole("button", { name: "Count" }).isDisabled())
        await dialog(page).getByLabel("From").fill("12d")
        await dialog(page).getByRole("button", { name: "Count" }).click()
        await dialog(page).getByText("12 occurrences").first().waitFor()
        assert.deepStrictEqual(await Chromium.findings(page), [])
        // Another range is counted again.
        await dialog(page).getByLabel("To", { exact: true }).fill("1d")
        await dialog(page).getByRole("button", { name: "Count" }).click()
        await dialog(page).getByText("11 occurrences").first().waitFor()
        assert.isTrue(await dialog(page).getByRole("button", { name: "Start" }).isDisabled())
        await confirm(page, "11", "Start 11 occurrences")
        await page.getByText("backfill", { exact: true }).nth(10).waitFor()
      })
      const runs = yield* schedules.runs("clean-rooms")
      assert.strictEqual(runs.filter(({ kind }) => kind === "Backfill").length, 11)
    }))

  it.effect("one that no process fires is counted beside the name of the view, and leads there from the overview", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, base)
      await page.getByText("schedule left-alone is overdue").waitFor()
      await page.getByRole("link", { name: "Show the schedule" }).click()
      await page.getByText(/no process that runs has that code/).waitFor()
      await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Schedules 1" }).waitFor()
    }))

  it.effect("one is deleted when its name is typed, and other pages that show it say so", () =>
    Effect.gen(function*() {
      const { schedules } = yield* Lobby
      yield* operating(async (page, base) => {
        await Chromium.visit(page, base + schedule("left-alone"))
        const other = await page.context().newPage()
        await other.goto(`${base}#token=${Hotel.tokens.read}`)
        await Chromium.visit(other, base + schedule("left-alone"))
        await act(page, "Delete…")
        await confirm(page, "left-alone", "Delete")
        await page.getByRole("heading", { name: "Schedules", level: 1 }).waitFor()
        await other.getByText("This schedule was deleted.").waitFor()
      })
      assert.isTrue(Option.isNone(yield* schedules.get("left-alone")))
    }))

  it.effect("a reader sees all of it, and can change nothing", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, `${base}#/schedules`)
      assert.isTrue(await page.getByRole("button", { name: /^Run now/ }).first().isDisabled())
      await Chromium.visit(page, base + schedule("clean-rooms"))
      await page.locator("summary", { hasText: /^Actions/ }).click()
      for (const name of ["Run now…", "Pause…", "Backfill…", "Delete…"]) {
        assert.isTrue(await page.getByRole("button", { name }).isDisabled(), name)
      }
    }, { token: Hotel.tokens.read }))
})
