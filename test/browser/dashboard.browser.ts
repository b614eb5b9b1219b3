/**
 * The dashboard in a real browser, beside work that continues while a worker is killed again and again.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { cpSync, mkdirSync } from "node:fs"
import * as Chromium from "./chromium.ts"
import * as Hotel from "./hotel.ts"
import { layer, Lobby } from "./lobby.ts"

const pictures = "build/pictures"
mkdirSync(pictures, { recursive: true })

/** Whether to take those of README anew. */
const takesReadme = process.env["PICTURES"] === "1"

const idOf = (id: string) => `instances/${encodeURIComponent(id)}`

/** Every view, by the name of its picture. */
const views: { readonly [name: string]: string } = {
  overview: "",
  instances: "instances",
  blocked: idOf("stuck"),
  failed: idOf("declined"),
  waiting: idOf("waits"),
  completed: idOf("done"),
  long: idOf("long"),
  hostile: idOf(Hotel.hostile.id),
  streams: `${idOf("concierge")}?tab=streams&stream=talk`,
  "streams-json": `${idOf("concierge")}?tab=streams&stream=floors`,
  requests: `${idOf("concierge")}?tab=requests`,
  limits: "limits",
  definitions: "definitions",
  queues: "queues",
  tasks: "tasks",
  schedules: "schedules",
  schedule: "schedules/clean-rooms",
  "schedule-overdue": "schedules/left-alone",
  "schedule-hostile": `schedules/${encodeURIComponent(Hotel.hostile.id)}`,
  processes: "processes",
  "audit-log": "audit-log"
}

it.layer(layer, { excludeTestServices: true, timeout: "5 minutes" })("the dashboard in a browser", (it) => {
  for (const look of Chromium.looks) {
    it.effect(`shows every view at ${look.width} pixels, ${look.scheme}, to everyone`, () =>
      Effect.gen(function*() {
        const { base, browser, kills } = yield* Lobby
        const { complaints, page } = yield* Chromium.open(browser, base, Hotel.tokens.operate, look)
        for (const [name, path] of Object.entries(views)) {
          yield* Effect.promise(async () => {
            await Chromium.visit(page, `${base}#/${path}`)
            const picture = `${pictures}/${name}-${look.width}-${look.scheme}.png`
            await page.screenshot({ path: picture })
            if (takesReadme && name === "failed" && look === Chromium.looks[0]) {
              cpSync(picture, "docs/pictures/failed.png")
            }
            assert.deepStrictEqual(await Chromium.findings(page), [], `axe: ${name}`)
            assert.isAtMost(await Chromium.overflow(page), 0, `${name} is wider than the window`)
          })
        }
        if (look.width === 1440 && look.scheme === "light") {
          yield* Effect.promise(async () => {
            // The chart begins with the second pace.
            await Chromium.visit(page, base)
            await page.locator(".uplot").waitFor()
            await page.screenshot({ path: `${pictures}/README-overview.png` })
            if (takesReadme) cpSync(`${pictures}/README-overview.png`, "docs/pictures/overview.png")
          })
        }
        assert.deepStrictEqual(complaints, [])
        assert.isUndefined(yield* Effect.promise(() => page.evaluate("globalThis.hacked")))
        assert.isAbove(kills(), 0)
      }).pipe(Effect.scoped))
  }
})
