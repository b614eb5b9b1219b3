/**
 * A headless Chromium, from Debian's package or where `CHROMIUM` says.
 */
import axe from "axe-core"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { existsSync } from "node:fs"
import { chromium } from "playwright-core"
import type { Browser, Page } from "playwright-core"

export const launch: Effect.Effect<Browser, never, Scope.Scope> = Effect.acquireRelease(
  Effect.promise(() => {
    const executablePath = process.env["CHROMIUM"] ?? "/usr/bin/chromium"
    if (!existsSync(executablePath)) {
      throw new Error(
        `there is no ${executablePath}: install it (apt-get install chromium), or set CHROMIUM to another one`
      )
    }
    return chromium.launch({
      executablePath,
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync"
      ]
    })
  }),
  (browser) => Effect.promise(() => browser.close())
)

export interface Look {
  readonly width: number
  readonly scheme: "light" | "dark"
}

export const looks: ReadonlyArray<Look> = [
  { width: 1440, scheme: "light" },
  { width: 1440, scheme: "dark" },
  { width: 390, scheme: "light" },
  { width: 390, scheme: "dark" }
]

export interface Opened {
  readonly page: Page
  /** What a console of a person would show: errors of scripts, breaches of the content policy, failed requests. */
  readonly complaints: Array<string>
}

/** A page that has signed in, until the scope is closed. */
export const open = (
  browser: Browser,
  base: string,
  token: string,
  { scheme, width }: Look = looks[0]!
): Effect.Effect<Opened, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme })
        const page = await context.newPage()
        page.setDefaultTimeout(60_000) // A busy machine, and workers whose locks have to run out.
        const complaints: Array<string> = []
        page.on("console", (message) => {
          if (["error", "warning"].includes(message.type())) complaints.push(message.text())
        })
        page.on("pageerror", (error) => complaints.push(String(error)))
        page.on("dialog", (dialog) => {
          complaints.push(`dialog: ${dialog.message()}`)
          void dialog.dismiss()
        })
        await page.goto(`${base}#token=${token}`)
        await page.getByRole("heading", { level: 1 }).waitFor()
        return { context, page, complaints }
      }),
      ({ context }) => Effect.promise(() => context.close())
    ),
    ({ complaints, page }) => ({ complaints, page })
  )

/** Goes to a view as a link from elsewhere does, and ends when it has all that it asked for. */
export const visit = async (page: Page, url: string): Promise<void> => {
  await page.goto("about:blank")
  await page.goto(url)
  await page.getByRole("heading", { level: 1 }).waitFor()
  // What has arrived may lead to further questions.
  for (let quiet = 0; quiet < 5; quiet++) {
    if (await page.getByText("Loading…").count() > 0) quiet = 0
    await page.waitForTimeout(50)
  }
}

/** Findings of axe, each with the elements it is about. */
export const findings = async (page: Page): Promise<ReadonlyArray<string>> => {
  // The content policy forbids a script element; the debugger may evaluate.
  await page.evaluate(axe.source)
  return page.evaluate(async () => {
    const { violations } = await (globalThis as unknown as { axe: typeof axe }).axe.run()
    return violations.map(({ help, id, nodes }) =>
      `${id}: ${help}: ${nodes.map(({ target }) => target.join(" ")).join(", ")}`
    )
  })
}

/** How far the page is wider than its window. */
export const overflow = (page: Page): Promise<number> =>
  page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
