import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Crawl, CrawlLimits, RuntimeLive } from "../../examples/crawl/crawl.ts"
import { home, Site } from "../../examples/crawl/site.ts"

type Options = typeof Crawl.payload.Type

const crawl = (options: Partial<Options> = {}) =>
  Effect.flatMap(Client.Client, (client) =>
    client.execute(Crawl, {
      instanceId: "c",
      payload: { start: home, maxPages: 100, ...options }
    }))

const inVirtualTime = Effect.provide(
  TestRuntime.layer(Layer.mergeAll(RuntimeLive, CrawlLimits)).pipe(Layer.provideMerge(Site.layer))
)

const urlsOf = (...paths: ReadonlyArray<string>) => paths.map((path) => new URL(path, home).href)

const urls = urlsOf("/", "/about", "/shop", "/blog", "/jobs", "/team", "/blog/2")

describe("crawl", () => {
  it.effect("reads every page once, tries the busy one again and names the broken one", () =>
    Effect.gen(function*() {
      const map = yield* crawl()
      assert.sameMembers(map.pages.map(({ url }) => url), urls)
      assert.deepStrictEqual(map.broken, [{ url: `${home}gone`, why: "Missing" }])
      const requests = (yield* Site).log.map(({ url }) => url).sort()
      assert.deepStrictEqual(requests, [...urls, ...urlsOf("/gone", "/shop", "/shop")].sort())
    }).pipe(inVirtualTime))

  it.effect("two crawls together begin as many requests in any second as the limit of their host allows", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* Effect.all([
        crawl(),
        client.execute(Crawl, { instanceId: "d", payload: { start: `${home}team`, maxPages: 3 } })
      ], { concurrency: "unbounded" })
      const times = (yield* Site).log.map(({ atMs }) => atMs)
      assert.lengthOf(times, 13)
      for (const [index, atMs] of times.entries()) {
        assert.isAtLeast((times[index + 1] ?? Infinity) - atMs, 250, `requests ${index} and ${index + 1}`)
      }
      assert.isAtMost(times.at(-1)! - times[0]!, 6000)
    }).pipe(inVirtualTime))

  it.effect("stops at the maximum depth", () =>
    Effect.gen(function*() {
      const map = yield* crawl({ maxPages: 4 })
      assert.deepStrictEqual(map.pages.map(({ url }) => url), urlsOf("/", "/about", "/shop", "/blog"))
    }).pipe(inVirtualTime))

  it.effect("requests no page twice because of a crash", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Crawl, {
        instanceId: "c",
        payload: { start: home, maxPages: 100 }
      })
      for (let second = 1; second <= 12; second++) {
        yield* TestRuntime.advance("500 millis")
        yield* TestRuntime.crash
      }
      const map = yield* client.wait(Crawl, "c")
      assert.lengthOf(map.pages, 7)
      assert.lengthOf((yield* Site).log, 10)
    }).pipe(inVirtualTime))
})
