/**
 * What people do with the dashboard, by clicks and keys, beside work that continues while a worker is killed again and
 * again.
 */
import { assert, it } from "@effect/vitest"
import { Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Page } from "playwright-core"
import { Booking } from "../programs/hotel.ts"
import * as Chromium from "./chromium.ts"
import * as Hotel from "./hotel.ts"
import { layer, Lobby } from "./lobby.ts"
import { act, confirm, dialog, operating } from "./operating.ts"

const instance = (id: string) => `#/instances/${encodeURIComponent(id)}`

const hasStatus = (page: Page, status: string) =>
  page.locator("main").getByText(status, { exact: true }).first().waitFor()

it.layer(layer, { excludeTestServices: true, timeout: "5 minutes" })("actions in a browser", (it) => {
  const book = (instanceId: string, amount = 900) =>
    Effect.flatMap(
      Lobby,
      ({ client }) => client.start(Booking, { instanceId, payload: { guest: "Gus", room: 1, amount } })
    )

  it.effect("a token in the address signs in, and leaves the address; without one the page asks, as after signing out", () =>
    Effect.gen(function*() {
      const { base, browser } = yield* Lobby
      yield* Effect.promise(async () => {
        const context = await browser.newContext()
        const page = await context.newPage()
        await page.goto(`${base}${instance("done")}`)
        await page.getByLabel("Token").fill("wrong")
        await page.getByRole("button", { name: "Sign in" }).click()
        await page.getByText(/not one of this dashboard/).waitFor()
        await page.getByLabel("Token").fill(Hotel.tokens.operate)
        await page.getByRole("button", { name: "Sign in" }).click()
        await page.getByRole("heading", { name: "done" }).waitFor()
        await page.goto("about:blank")
        await page.goto(`${base}#token=${Hotel.tokens.operate}`)
        await page.getByRole("heading", { name: "Overview" }).waitFor()
        assert.notInclude(page.url(), "token")
        await page.getByRole("button", { name: "Sign out" }).click()
        await page.getByText("You are signed out.").waitFor()
        await page.getByLabel("Token").fill(Hotel.tokens.read)
        await page.getByRole("button", { name: "Sign in" }).click()
        await page.getByText(/· read$/).waitFor()
        await context.close()
      })
    }))

  it.effect("an approval is sent with a form, and the page sees the instance end without being loaded again", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, base + instance("waits"))
      await page.getByRole("button", { name: "Send Approved" }).click()
      await dialog(page).getByRole("button", { name: "Send" }).click()
      // It says what is missing, and sends nothing.
      await dialog(page).getByText("limit needs a number.").waitFor()
      await dialog(page).locator("[aria-invalid]:focus").waitFor()
      await dialog(page).getByLabel("by").fill("Ada")
      await dialog(page).getByLabel("limit").fill("5")
      await dialog(page).getByLabel("urgent").check()
      await dialog(page).getByLabel("level").selectOption("director")
      await dialog(page).getByRole("button", { name: "Send" }).click()
      await hasStatus(page, "Completed")
    }))

  it.effect("a failed one is retried, once it is shown what runs again", () =>
    Effect.gen(function*() {
      yield* operating(async (page, base) => {
        await Chromium.visit(page, base + instance("declined"))
        await page.getByRole("button", { name: "Retry…" }).click()
        await dialog(page).getByText(/Runs again, with the same idempotency key/).waitFor()
        // The booking that is stuck began in another way.
        assert.strictEqual(await dialog(page).getByText(/may block as well/).count(), 0)
        assert.strictEqual(await dialog(page).locator(".danger").count(), 0)
        await dialog(page).getByLabel("Reason").fill("the bank is back")
        await dialog(page).getByRole("button", { name: "Retry" }).click()
        await dialog(page).waitFor({ state: "detached" })
        await page.getByText("The retry of declined is accepted: it continues when a process takes it").waitFor()
        await page.goto(`${base}#/audit-log`)
        await page.getByText("reason: the bank is back").waitFor()
      })
      const { admin } = yield* Lobby
      const [last] = (yield* admin.listActions()).actions
      assert.deepInclude(last!, { actor: "ada", action: "retry", target: "declined", outcome: "done" })
      assert.match(last!.details, /^from event: \d+; removed events: \d+ to \d+; reason: the bank is back$/)
    }))

  it.effect("before all that match are retried, it is shown what runs again", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, `${base}#/instances?status=Failed&name=Booking`)
      await page.locator("summary", { hasText: "Act on all" }).click()
      await page.getByRole("button", { name: "Retry" }).click()
      await dialog(page).getByText(/Runs again, with the same idempotency key: \d+ calls? of Charge/).waitFor()
    }))

  it.effect("a blocked one continues from an event that the code of today decides", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, `${base}#/definitions`)
      await page.locator("a.badge.red", { hasText: /^1$/ }).and(page.locator("[href*=Blocked]")).click()
      await page.locator("summary", { hasText: "Act on all 1…" }).waitFor()
      await Chromium.visit(page, base + instance("stuck"))
      await page.getByText(/history has activity "Check"/).first().waitFor()
      await page.getByText(/build original, which tried last, cannot continue it\. No other build runs now\./).waitFor()
      await page.getByText("No other instance of Booking 1.0.0 is blocked.").waitFor()
      await page.getByRole("button", { name: "Retry from an event…" }).click()
      await dialog(page).getByLabel("From event").fill("1")
      await dialog(page).getByText(/Runs a second time, if the code still calls it; what it did .* stays done: Check/)
        .waitFor()
      await dialog(page).locator("button.danger", { hasText: "Retry" }).click()
      await hasStatus(page, "Completed")
    }))

  it.effect("a definition is paused with a reason, and resumed", () =>
    Effect.gen(function*() {
      const { client } = yield* Lobby
      yield* operating(async (page, base) => {
        await Chromium.visit(page, `${base}#/definitions`)
        await page.getByRole("button", { name: /^Pause…\s*Booking 1\.0\.0/ }).click()
        await dialog(page).getByLabel("Reason").fill("a fire drill")
        await dialog(page).getByRole("button", { name: "Pause" }).click()
        await dialog(page).waitFor({ state: "detached" })
        await page.getByText("Paused").first().waitFor()
      })
      yield* book("paused", 10)
      const status = yield* client.status("paused")
      assert.isTrue(status._tag === "Running" && status.pause._tag === "Some")
      yield* operating(async (page, base) => {
        await Chromium.visit(page, base)
        await page.getByText(/a fire drill/).first().waitFor()
        await page.getByRole("button", { name: "Resume" }).first().click()
        await dialog(page).getByText(/for all instances/).waitFor()
        await dialog(page).getByRole("button", { name: "Resume" }).click()
        await page.getByText("Nothing is paused.").waitFor()
      })
      assert.strictEqual(yield* client.wait(Booking, "paused"), "paid 10")
    }))

  it.effect("an instance is started with a form, interrupted, terminated, forked, deleted", () =>
    Effect.gen(function*() {
      yield* book("to-interrupt")
      yield* book("to-terminate")
      yield* operating(async (page, base) => {
        await Chromium.visit(page, `${base}#/definitions`)
        await page.getByRole("button", { name: "Start" }).first().click()
        await dialog(page).getByLabel("Orchestration").selectOption("Booking")
        await dialog(page).getByLabel("Instance id").fill("by hand")
        await dialog(page).getByLabel("guest").fill("Hal")
        await dialog(page).getByLabel("room").fill("3")
        await dialog(page).getByLabel("amount").fill("20")
        await dialog(page).getByRole("button", { name: "Start" }).click()
        await page.getByRole("heading", { name: "by hand" }).waitFor()
        await hasStatus(page, "Completed")

        for (const [id, action] of [["to-interrupt", "Interrupt"], ["to-terminate", "Terminate"]] as const) {
          await Chromium.visit(page, base + instance(id))
          await act(page, action)
          await dialog(page).getByLabel("Reason").fill("a test")
          await dialog(page).getByRole("button", { name: action }).click()
          await hasStatus(page, "Cancelled")
        }

        await Chromium.visit(page, base + instance("by hand"))
        await act(page, "Fork")
        await dialog(page).getByLabel("Event").fill("1")
        await dialog(page).getByLabel("Id of the fork").fill("by fork")
        await dialog(page).getByRole("button", { name: "Fork" }).click()
        await dialog(page).waitFor({ state: "detached" })
        await Chromium.visit(page, base + instance("by fork"))
        await hasStatus(page, "Completed")
        await act(page, "Delete")
        await confirm(page, "by fork", "Delete")
      })
      const { client } = yield* Lobby
      assert.strictEqual((yield* client.status("by fork"))._tag, "NotFound")
    }))

  it.effect("all that a filter finds are counted, and changed when the number is typed", () =>
    Effect.gen(function*() {
      yield* Effect.forEach(Array.from({ length: 12 }, (_, n) => n), (n) => book(`many-${n}`))
      yield* operating(async (page, base) => {
        await Chromium.visit(page, `${base}#/instances?idPrefix=many-`)
        await page.locator("summary", { hasText: "Act on all" }).click()
        await page.getByRole("button", { name: "Terminate" }).click()
        await dialog(page).getByText("12 instances").first().waitFor()
        await dialog(page).getByLabel(/^Type 12/).fill("12")
        await dialog(page).getByRole("button", { name: /Terminate/ }).click()
        await dialog(page).getByText(/12 instances terminated/).waitFor()
        await dialog(page).getByRole("button", { name: "Close" }).click()
      })
    }))

  it.effect("a dead task and dead letters are redriven", () =>
    Effect.gen(function*() {
      yield* operating(async (page, base) => {
        await Chromium.visit(page, `${base}#/tasks?status=Dead`)
        await page.getByLabel(/^Select /).first().check()
        await page.getByRole("button", { name: /^Redrive/ }).click()
        await dialog(page).getByRole("button", { name: "Redrive" }).click()
        await dialog(page).waitFor({ state: "detached" })
        await Chromium.visit(page, `${base}#/queues?dead=mails`)
        await page.getByRole("button", { name: /^Redrive/ }).first().click()
        await dialog(page).getByRole("button", { name: "Redrive" }).click()
        await dialog(page).waitFor({ state: "detached" })
      })
      const { sql } = yield* Lobby
      assert.deepStrictEqual(yield* sql("SELECT status FROM queue_tasks WHERE name = 'resize'"), [{
        status: "Pending"
      }])
      assert.deepStrictEqual(yield* sql("SELECT FROM queue_dead"), [])
    }))

  it.effect("an instance is paused and resumed, and a signal that no process could read is sent again", () =>
    Effect.gen(function*() {
      const { client } = yield* Lobby
      yield* book("unreadable")
      yield* operating(async (page, base) => {
        await Chromium.visit(page, base + instance("unreadable"))
        await page.getByText("waits for approval").first().waitFor()
        await act(page, "Pause")
        await dialog(page).getByLabel("Reason").fill("a call")
        await dialog(page).getByRole("button", { name: "Pause" }).click()
        await hasStatus(page, "Paused")
        await page.getByRole("button", { name: "Resume…" }).first().click()
        await dialog(page).getByRole("button", { name: /^Resume/ }).click()
        await hasStatus(page, "Running")
      })
      yield* client.send(Signal.make("Approved", { payload: Schema.Unknown }), "unreadable", { by: 5 })
      yield* operating(async (page, base) => {
        await Chromium.visit(page, `${base}${instance("unreadable")}?tab=state`)
        await page.getByRole("button", { name: /^Redrive Approved of event/ }).first().click()
        await dialog(page).getByRole("button", { name: "Redrive" }).click()
        await page.getByText(/^sent again/).first().waitFor()
      })
    }))

  it.effect("a task that waits is cancelled", () =>
    Effect.gen(function*() {
      const { sql } = yield* Lobby
      yield* sql(
        `INSERT INTO queue_tasks (id, name, payload, status, max_attempts, run_at, queue, created_at, updated_at, look_at)
         VALUES ('d0000000-0000-4000-8000-000000000000', 'resize', '{}', 'Pending', 20, now(), 'tasks', now(), now(), now())`
      )
      yield* operating(async (page, base) => {
        await Chromium.visit(page, `${base}#/tasks?status=Pending`)
        await page.getByLabel("Select d0000000-0000-4000-8000-000000000000").check()
        await page.getByRole("button", { name: /^Cancel/ }).click()
        await dialog(page).getByLabel("Reason").fill("not needed")
        await dialog(page).getByRole("button", { name: /^Cancel/ }).click()
        await dialog(page).waitFor({ state: "detached" })
      })
      assert.deepStrictEqual(
        yield* sql("SELECT status FROM queue_tasks WHERE id = 'd0000000-0000-4000-8000-000000000000'"),
        [{ status: "Cancelled" }]
      )
    }))

  it.effect("one failure among 10,000 events is found with one click, and no view has all of them at once", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, base + instance("long"))
      await page.getByText("10,002 events", { exact: true }).waitFor()
      const elements = () => page.evaluate("document.querySelectorAll('*').length")
      assert.isBelow(Number(await elements()), 10_000)
      await page.getByLabel("Only failures").check()
      await page.getByText(/the books differ/).first().waitFor()
      assert.strictEqual(await page.getByText(/the books differ/).count(), 1)
    }))

  it.effect("an instance with 5,000 children shows them in pages", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, base + instance("family"))
      await page.getByRole("link", { name: "Children" }).or(page.getByRole("tab", { name: "Children" })).first().click()
      await page.getByText(/family::\d+/).first().waitFor()
      assert.isBelow(Number(await page.evaluate("document.querySelectorAll('*').length")), 10_000)
    }))

  it.effect("a reader is shown the same, and can change nothing", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, base + instance("declined"))
      assert.isTrue(await page.getByRole("button", { name: "Retry…" }).isDisabled())
      await Chromium.visit(page, `${base}#/definitions`)
      assert.isTrue(await page.getByRole("button", { name: "Start" }).first().isDisabled())
    }, { token: Hotel.tokens.read }))

  it.effect("keys are enough: to the content, into a dialog, out of it, back to where one was", () =>
    operating(async (page, base) => {
      await Chromium.visit(page, base + instance("done"))
      await page.getByText(/^done completed .* ago\.$/).waitFor()
      await page.keyboard.press("Tab")
      assert.match(await page.evaluate<string>("document.activeElement.textContent"), /^Skip/)
      const opener = page.locator("summary", { hasText: /^Actions/ }).first()
      await opener.focus()
      await page.keyboard.press("Enter")
      await page.keyboard.press("Tab")
      await page.keyboard.press("Enter")
      await dialog(page).waitFor()
      await page.keyboard.press("Escape")
      await dialog(page).waitFor({ state: "detached" })
      assert.isTrue(await page.evaluate<boolean>("document.activeElement.closest('details.menu') !== null"))
    }))
})
