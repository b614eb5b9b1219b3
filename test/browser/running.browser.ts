/**
 * Streams, requests, limits and later starts by clicks and keys.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Ring } from "../programs/hotel.ts"
import * as Chromium from "./chromium.ts"
import * as Hotel from "./hotel.ts"
import { layer, Lobby } from "./lobby.ts"
import { act, confirm, dialog, operating } from "./operating.ts"

it.layer(layer, { excludeTestServices: true, timeout: "5 minutes" })("an instance at work in a browser", (it) => {
  it.effect("the end of a stream follows what is appended; another one has JSON, from an offset", () =>
    Effect.gen(function*() {
      const { client } = yield* Lobby
      yield* operating(async (page, base) => {
        await Chromium.visit(page, `${base}#/instances/concierge`)
        await page.getByRole("link", { name: "Streams 2" }).click()
        await page.getByRole("link", { name: "talk" }).click()
        const log = page.getByRole("log")
        await log.getByText("</script><b>guest</b>.").waitFor()
        assert.notInclude(await log.innerText(), "rings")
        await Effect.runPromise(client.send(Ring, "concierge"))
        await log.getByText("Someone rings.").waitFor()
        await page.getByRole("link", { name: "floors" }).click()
        await log.getByText("{\"floor\":1,\"note\":\"clean\"}").waitFor()
        await page.getByLabel("From offset").fill("1")
        await log.getByText("{\"floor\":1,\"note\":\"clean\"}").waitFor({ state: "detached" })
        await log.getByText("<img src=x>").waitFor()
        await page.getByRole("button", { name: "Hide payloads" }).click()
        await page.getByText(/^Payloads are hidden/).waitFor()
        await page.getByRole("button", { name: "Payloads hidden" }).click()
      })
    }))

  it.effect("a request is made with a form, and its answer or refusal is shown", () =>
    Effect.gen(function*() {
      yield* operating(async (page, base) => {
        await Chromium.visit(page, `${base}#/instances/concierge?tab=requests`)
        await act(page, "Ask a request…")
        await dialog(page).getByRole("button", { name: "Ask" }).click()
        await dialog(page).getByText("nights needs a number.").waitFor()
        await dialog(page).locator("[aria-invalid]:focus").waitFor()
        await dialog(page).getByLabel("nights").fill("2")
        await dialog(page).getByLabel("breakfast").check()
        await dialog(page).getByRole("button", { name: "Ask" }).click()
        await dialog(page).getByText("concierge answered Quote").waitFor()
        await dialog(page).getByText("\"euros\": 200").waitFor()
        assert.deepStrictEqual(await Chromium.findings(page), [])
        await dialog(page).getByLabel("nights").fill("40")
        await dialog(page).getByRole("button", { name: "Ask again" }).click()
        await dialog(page).getByText("concierge refused Quote").waitFor()
        await dialog(page).getByText("we are full").waitFor()
        await dialog(page).getByRole("button", { name: "Close" }).click()
        await page.getByRole("row").filter({ hasText: "Answered" }).nth(1).waitFor()
        await page.getByRole("row").filter({ hasText: "Refused" }).nth(1).waitFor()
      })
      const { admin } = yield* Lobby
      const [last, before] = (yield* admin.listActions()).actions
      assert.deepInclude(last!, { action: "request", target: "concierge", details: "Quote; Refused", outcome: "done" })
      assert.deepInclude(before!, { action: "request", details: "Quote" })
    }))

  it.effect("a start is put off, and the instance says until when", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, `${base}#/definitions?start=Concierge`)
      await dialog(page).getByLabel("Instance id").fill("tomorrow")
      await dialog(page).getByLabel("Begins").fill("tomorrow")
      await dialog(page).getByText(/^Write a delay/).waitFor()
      assert.isTrue(await dialog(page).getByRole("button", { name: "Start" }).isDisabled())
      await dialog(page).getByLabel("Begins").fill("1d")
      await dialog(page).getByRole("button", { name: "Start" }).click()
      await page.getByRole("heading", { name: "tomorrow" }).waitFor()
      await page.getByText(/^begins in (1 d|23 h)/).waitFor()
    }))

  it.effect("a limit is set, changed for a key, and removed when its activity is typed", () =>
    Effect.gen(function*() {
      const { admin } = yield* Lobby
      yield* operating(async (page, base) => {
        await Chromium.visit(page, `${base}#/limits`)
        const row = (text: string) => page.getByRole("row").filter({ hasText: text })
        await row("Ben").getByText("as each key").waitFor()
        await page.getByRole("button", { name: /^Change…\s*key Ada/ }).click()
        await dialog(page).getByLabel("At once").fill("none")
        await dialog(page).getByText(/^Write a whole number/).waitFor()
        await dialog(page).getByLabel("At once").fill("3")
        await dialog(page).getByText("3 at once").waitFor()
        await dialog(page).getByRole("button", { name: "Set" }).click()
        await dialog(page).waitFor({ state: "detached" })
        // What waited begins.
        await row("3 at once").getByRole("cell", { name: "3", exact: true }).waitFor()

        await page.getByRole("button", { name: "Set a limit" }).click()
        await dialog(page).getByLabel("Name").fill("Charge")
        await dialog(page).getByLabel("Begin").fill("100")
        await dialog(page).getByLabel("Per").fill("10 s")
        assert.deepStrictEqual(await Chromium.findings(page), [])
        await dialog(page).getByRole("button", { name: "Set" }).click()
        await dialog(page).waitFor({ state: "detached" })
        await page.getByText("100 per 10 s").waitFor()
        await page.getByRole("button", { name: /^Remove all…\s*activity Charge/ }).click()
        await confirm(page, "Charge", "Remove")
        await page.getByText("100 per 10 s").waitFor({ state: "detached" })
      })
      assert.deepStrictEqual((yield* admin.getLimits).map(({ name }) => name), ["Deliver"])
      assert.strictEqual((yield* admin.getLimit("activity", "Deliver", "Ada"))!.keys[0]!.own!.concurrency, 3)
    }))

  it.effect("a reader sees all of it, and can change nothing", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, `${base}#/limits`)
      for (const name of ["Set a limit", /^Remove all/, /^Change/, /^Bound of a key/]) {
        assert.isTrue(await page.getByRole("button", { name }).first().isDisabled(), String(name))
      }
      await Chromium.visit(page, `${base}#/instances/concierge?tab=requests`)
      await page.locator("summary", { hasText: /^Actions/ }).click()
      assert.isTrue(await page.getByRole("button", { name: "Ask a request…" }).isDisabled())
    }, { token: Hotel.tokens.read }))
})
