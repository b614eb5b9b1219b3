import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Crawl, RuntimeLive } from "../../examples/crawl/crawl.ts"
import { Site } from "../../examples/crawl/site.ts"

type Options = typeof Crawl.payload.Type

const crawl = (options: Partial<Options> = {}) =>
  Effect.flatMap(Client.Client, (client) =>
    client.execute(Crawl, {
      instanceId: "c",
      payload: { start: "/", maxPages: 100, concurrency: 3, perSecond: 2, ...options }
    }))

const inVirtualTime = Effect.provide(TestRuntime.layer(RuntimeLive).pipe(Layer.provideMerge(Site.layer)))

const urls = ["/", "/about", "/shop", "/blog", "/jobs", "/team", "/blog/2"]

describe("crawl", () => {
  it.effect("reads every page once, tries the busy one again and names the broken one", () =>
    Effect.gen(function*() {
      const map = yield* crawl()
      assert.sameMembers(map.pages.map(({ url }) => url), urls)
      assert.deepStrictEqual(map.broken, [{ url: "/gone", why: "Missing" }])
      const requests = (yield* Site).log.map(({ url }) => url).sort()
      assert.deepStrictEqual(requests, [...urls, "/gone", "/shop", "/shop"].sort())
    }).pipe(inVirtualTime))

  it.effect("begins as many requests in any second as the limit allows, and no more", () =>
    Effect.gen(function*() {
      yield* crawl({ perSecond: 2 })
      const times = (yield* Site).log.map(({ atMs }) => atMs)
      for (const [index, atMs] of times.entries()) {
        assert.isAtLeast((times[index + 2] ?? Infinity) - atMs, 1000, `requests ${index} to ${index + 2}`)
      }
      assert.isAtMost(times.at(-1)! - times[0]!, 6000)
    }).pipe(inVirtualTime))

  it.effect("stops at the maximum depth", () =>
    Effect.gen(function*() {
      const map = yield* crawl({ maxPages: 4 })
      assert.deepStrictEqual(map.pages.map(({ url }) => url), ["/", "/about", "/shop", "/blog"])
    }).pipe(inVirtualTime))

  it.effect("requests no page twice because of a crash", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Crawl, {
        instanceId: "c",
        payload: { start: "/", maxPages: 100, concurrency: 1, perSecond: 1 }
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
