/**
 * A site to crawl: seven pages that link to each other in circles, one that is missing, and one that is often busy.
 */
import { Clock, Context, Effect, Layer, Schema } from "effect"

export const Page = Schema.Struct({ url: Schema.String, title: Schema.String, links: Schema.Array(Schema.String) })

export class Missing extends Schema.TaggedError<Missing>()("Missing", {}) {}

/** Worth another try. */
export class Busy extends Schema.TaggedError<Busy>()("Busy", {}) {}

export class Site extends Context.Service<Site, {
  readonly get: (url: string) => Effect.Effect<typeof Page.Type, Missing | Busy>
  /** What was asked for, and when. */
  readonly log: Array<{ readonly url: string; readonly atMs: number }>
}>()("examples/crawl/Site") {
  static readonly layer = Layer.sync(Site, () => {
    const log: Array<{ readonly url: string; readonly atMs: number }> = []
    return {
      log,
      get: Effect.fn("Site.get")(function*(url: string) {
        log.push({ url, atMs: yield* Clock.currentTimeMillis })
        if (url === `${home}shop` && log.filter((request) => request.url === url).length < 3) return yield* new Busy()
        const { pathname } = new URL(url)
        const links = pages[pathname]
        if (links === undefined) return yield* new Missing()
        return {
          url,
          title: pathname === "/" ? "Home" : `Page ${pathname.slice(1)}`,
          links: links.map((link) => new URL(link, url).href)
        }
      })
    }
  })
}

export const home = "https://site.example/"

const pages: Record<string, ReadonlyArray<string>> = {
  "/": ["/about", "/shop", "/blog", "/"],
  "/about": ["/", "/jobs", "/team"],
  "/shop": ["/", "/gone"],
  "/blog": ["/", "/blog/2", "/about"],
  "/blog/2": ["/blog"],
  "/jobs": ["/about", "/team"],
  "/team": ["/jobs", "/gone"]
}
