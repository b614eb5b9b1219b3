/**
 * `npm run example -- crawl`, in a clone: maps a small site with two requests at a time and four in a second.
 */
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Console, Effect, Layer } from "effect"
import { Crawl, CrawlLimits, RuntimeLive } from "./crawl.ts"
import { home, Site } from "./site.ts"

const App = Layer.mergeAll(RuntimeLive, CrawlLimits, Client.layer).pipe(
  Layer.provideMerge(Site.layer),
  Layer.provide(PrismaProvider.layerDefault({ schema: "example_crawl" }))
)

const main = Effect.gen(function*() {
  const client = yield* Client.Client
  const { log } = yield* Site
  const map = yield* client.execute(Crawl, {
    instanceId: `crawl ${new Date().toISOString()}`,
    payload: { start: home, maxPages: 100 }
  })
  const begun = log[0]!.atMs
  for (const { atMs, url } of log) yield* Console.log(`${((atMs - begun) / 1000).toFixed(1)} s  GET ${url}`)
  for (const { links, title, url } of map.pages) yield* Console.log(`${url} "${title}" links to ${links.join(", ")}`)
  for (const { url, why } of map.broken) yield* Console.log(`${url} is broken: ${why}`)
})

await Effect.runPromise(main.pipe(Effect.provide(App)))
