/**
 * When the machine was too busy to renew a lock in time: how long a new connection and one statement took, which is
 * what a renewal needs after its connection was cut.
 */
import * as pg from "pg"
import type { Span } from "./excuses.ts"
import { now, sleep } from "./processes.ts"

const pauseMs = 250

/** Some twenty times what it takes on a machine that is not busy. */
const tooLongMs = 200

/** Measures until it is stopped. */
export const watch = (url: string) => {
  const spans: Array<Span> = []
  const over = new AbortController()
  const run = async () => {
    while (!over.signal.aborted) {
      const from = now()
      const client = new pg.Client(url)
      client.on("error", () => {})
      // A fault that was injected is an excuse of its own.
      const isAnswered = await client.connect().then(() => client.query("SELECT")).then(() => true, () => false)
      const to = now()
      if (isAnswered && to - from > tooLongMs) spans.push({ from, to })
      await client.end().catch(() => {})
      await sleep(pauseMs)
    }
  }
  const running = run()
  return {
    stop: async (): Promise<ReadonlyArray<Span>> => {
      over.abort()
      await running
      return spans
    }
  }
}
