/**
 * Crawls a site: every page once, several at a time, no more than so many requests in a second. A crash loses nothing:
 * pages that were fetched are in the history. The limits are those of the host, for all crawls and processes together.
 */
import { Activity, Limits, Orchestration, Runtime } from "duroxide-prisma"
import { Effect, Layer, Result, Schedule, Schema } from "effect"
import { Busy, Missing, Page, Site } from "./site.ts"

export const Fetch = Activity.make("Fetch", {
  payload: Schema.String,
  success: Page,
  error: Schema.Union([Missing, Busy]),
  limitKey: (url) => new URL(url).host
})

/** What links where, and what could not be read. */
export const SiteMap = Schema.Struct({
  pages: Schema.Array(Page),
  broken: Schema.Array(Schema.Struct({ url: Schema.String, why: Schema.String }))
})

export const Crawl = Orchestration.make("Crawl", {
  payload: Schema.Struct({
    start: Schema.String,
    maxPages: Schema.Int
  }),
  success: SiteMap,
  limitKey: ({ start }) => new URL(start).host
})

/** Two requests to a host are under way at once, and four begin in any second. Two crawls of a host run. */
export const CrawlLimits = Limits.layer([
  Limits.of(Fetch, { eachKey: { concurrency: 2, rate: { count: 4, per: "1 second" } } }),
  Limits.of(Crawl, { total: { concurrency: 10 }, eachKey: { concurrency: 2 } })
])

const CrawlLive = Crawl.toLayer(Effect.fn(
  function*({ maxPages, start }) {
    const visit = (url: string) =>
      Fetch.execute(url).pipe(
        Effect.retry({
          while: (error) => error._tag === "Busy",
          schedule: Schedule.exponential("500 millis"),
          times: 5
        }),
        Effect.result,
        Effect.map((result) => ({ url, result }))
      )

    // Plain data of the program: after a crash it is there again, as the program goes through its history.
    const pages: Array<typeof Page.Type> = []
    const broken: Array<{ readonly url: string; readonly why: string }> = []
    const seen = new Set([start])
    let next = [start]
    while (next.length > 0) {
      const visited = yield* Effect.forEach(next, visit, { concurrency: "unbounded" })
      next = []
      for (const { result, url } of visited) {
        if (Result.isFailure(result)) {
          broken.push({ url, why: result.failure._tag })
          continue
        }
        pages.push(result.success)
        for (const link of result.success.links) {
          if (seen.has(link) || seen.size >= maxPages) continue
          seen.add(link)
          next.push(link)
        }
      }
      yield* Orchestration.setCustomStatus(`${pages.length} pages read, ${next.length} to go`)
    }
    return { pages, broken }
  }
))

const FetchLive = Fetch.toLayer((url) => Effect.flatMap(Site, (site) => site.get(url)))

export const RuntimeLive = Runtime.layer({ orchestrations: [Crawl], activities: [Fetch] }).pipe(
  Layer.provide([CrawlLive, FetchLive])
)
