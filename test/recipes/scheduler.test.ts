import { assert, describe, it } from "@effect/vitest"
import { Trigger } from "duroxide-prisma/recipes/triggers"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as TestClock from "effect/testing/TestClock"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import * as Boxes from "../outbox/utils/outbox.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { everySecond, hour, hourly, open, token } from "./utils/triggers.ts"

/** A dispatcher that records the calls, in virtual time. */
const dispatcher = () => {
  const calls: Array<{ readonly url: string; readonly until: string; readonly authorization: string | null }> = []
  const answers: Array<() => Response> = []
  return {
    calls,
    answers,
    fetch: (async (url: string, init: { readonly body: string; readonly headers: Record<string, string> }) => {
      calls.push({
        url,
        until: (JSON.parse(init.body) as { readonly until: string }).until,
        authorization: new Headers(init.headers).get("authorization")
      })
      return (answers.shift() ?? (() => Response.json({ instants: [], hasMore: false })))()
    }) as typeof globalThis.fetch
  }
}

/** Moves the clock, and lets the requests that follow end. */
const pass = (duration: string) =>
  Effect.andThen(
    TestClock.adjust(duration as "1 second"),
    Effect.promise(() => new Promise((resolve) => setTimeout(resolve, 5)))
  )

describe("a scheduler:", () => {
  it.effect("calls at its start, and at each instant", () =>
    Effect.gen(function*() {
      const { calls, fetch } = dispatcher()
      yield* TestClock.setTime(Date.parse("2026-01-01T07:59:00Z"))
      yield* Layer.build(
        Trigger.scheduler({ url: "https://d/triggers/", token: Redacted.make(token), crons: [hourly], fetch })
      )
      yield* pass("0 seconds")
      yield* pass("59 seconds")
      assert.strictEqual(calls.length, 1)
      yield* pass("1 second")
      yield* pass("1 hour")
      assert.deepStrictEqual(
        calls,
        ["2026-01-01T07:59:00.000Z", hour(8), hour(9)].map((until) => ({
          url: "https://d/triggers/cron/hourly",
          until,
          authorization: `Bearer ${token}`
        }))
      )
    }).pipe(Effect.scoped))

  it.effect("repeats a call that fails, with pauses that grow, and calls again at once while there is more", () =>
    Effect.gen(function*() {
      const { answers, calls, fetch } = dispatcher()
      const { into, lines } = Boxes.logged()
      answers.push(
        () => {
          throw new TypeError("fetch failed")
        },
        () => Response.json({ error: "s3cret" }, { status: 503 }),
        () => new Response("<html>"),
        () => Response.json({ hasMore: true })
      )
      yield* into(Layer.build(
        Trigger.scheduler({ url: "https://d/triggers", token: Redacted.make(token), crons: [hourly], fetch })
      ))
      yield* pass("0 seconds")
      assert.strictEqual(calls.length, 1)
      yield* pass("1 second")
      assert.strictEqual(calls.length, 2)
      yield* pass("2 seconds")
      assert.strictEqual(calls.length, 3)
      yield* pass("4 seconds")
      assert.strictEqual(calls.length, 5)
      assert.deepStrictEqual(
        lines.map(({ level, text }) => [level, text]),
        [
          ["Warn", "Scheduler: the dispatcher did not fire a trigger; the call is repeated"],
          ["Info", "Scheduler: the dispatcher answers again"]
        ]
      )
      assert.notInclude(JSON.stringify(lines), token)
    }).pipe(Effect.scoped))

  it.live("with a dispatcher over HTTP: instants fire, and a new scheduler makes up for the time without one", () =>
    Effect.gen(function*() {
      const { handle, keys } = yield* open
      const server = createServer(async (request, response) => {
        const chunks: Array<Uint8Array> = []
        for await (const chunk of request) chunks.push(chunk as Uint8Array)
        const answer = await handle(
          new Request(`http://${request.headers.host}${request.url}`, {
            method: request.method!,
            headers: { authorization: request.headers.authorization ?? "" },
            body: Buffer.concat(chunks)
          })
        )
        response.writeHead(answer.status).end(await answer.text())
      })
      yield* Effect.acquireRelease(
        Effect.promise(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))),
        () => Effect.sync(() => void server.close())
      )
      const scheduler = Trigger.scheduler({
        url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/triggers`,
        token: Redacted.make(token),
        crons: [everySecond]
      })
      const fired = (count: number) => waitUntil(Effect.map(keys, ({ length }) => length >= count))
      yield* Effect.scoped(Effect.andThen(Layer.build(scheduler), fired(2)))
      const before = yield* keys
      yield* Effect.sleep(1100)
      yield* Effect.scoped(Effect.andThen(Layer.build(Layer.fresh(scheduler)), fired(before.length + 3)))
      const seconds = (yield* keys).map((key) => Date.parse(key.replace("cron/every-second/", "")) / 1000)
      for (const [i, second] of seconds.entries()) assert.strictEqual(second, seconds[0]! + i, "without gaps")
    }).pipe(Effect.scoped))
})
