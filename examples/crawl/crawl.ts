/**
 * Crawls a site: every page once, several at a time, no more than so many requests in a second. A crash loses nothing:
 * pages that were fetched are in the history.
 */
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import { Effect, Layer, Result, Schedule, Schema, Semaphore } from "effect"
import { Busy, Missing, Page, Site } from "./site.ts"

export const Fetch = Activity.make("Fetch", {
  payload: Schema.String,
  success: Page,
  error: Schema.Union([Missing, Busy])
})

/** What links where, and what could not be read. */
export const SiteMap = Schema.Struct({
  pages: Schema.Array(Page),
  broken: Schema.Array(Schema.Struct({ url: Schema.String, why: Schema.String }))
})

export const Crawl = Orchestration.make("Crawl", {
  payload: Schema.Struct({
    start: Schema.String,
    maxPages: Schema.Int,
    /** Requests under way at once. */
    concurrency: Schema.Int,
    /** Requests that begin within any one second. */
    perSecond: Schema.Int
  }),
  success: SiteMap
})

const CrawlLive = Crawl.toLayer(Effect.fn(
  function*({ concurrency, maxPages, perSecond, start }) {
    const limited = yield* rateLimit(perSecond)
    const visit = (url: string) =>
      limited(Fetch.execute(url)).pipe(
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
      const visited = yield* Effect.forEach(next, visit, { concurrency })
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
  },
  Effect.scoped
))

/** At most `perSecond` calls begin within any one second: a call takes a permit, which comes back a second later. */
const rateLimit = Effect.fnUntraced(function*(perSecond: number) {
  const permits = yield* Semaphore.make(perSecond)
  const scope = yield* Effect.scope
  const comeBack = Effect.andThen(Effect.sleep("1 second"), Semaphore.release(permits, 1))
  return <A, E, R>(call: Effect.Effect<A, E, R>) =>
    Semaphore.take(permits, 1).pipe(
      Effect.andThen(Effect.forkIn(comeBack, scope)),
      Effect.andThen(call)
    )
})

const FetchLive = Fetch.toLayer((url) => Effect.flatMap(Site, (site) => site.get(url)))

export const RuntimeLive = Runtime.layer({ orchestrations: [Crawl], activities: [Fetch] }).pipe(
  Layer.provide([CrawlLive, FetchLive])
)
