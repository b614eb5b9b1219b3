import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"

it.live("audit lists what operators did in pages, the newest first", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    const on = (args: string, options: Cli.Options = {}) =>
      Cli.run(args, { ...options, env: { DATABASE_URL: url, NO_COLOR: "1" } })
    assert.strictEqual((yield* on("audit")).stdout, "no actions\n")
    assert.deepStrictEqual(JSON.parse((yield* on("audit --json")).stdout), { actions: [], next: null })
    yield* sql(`
      INSERT INTO operator_actions (at, actor, action, target, details, outcome)
      SELECT '2026-11-27T08:00:00Z'::timestamptz + g * interval '1 second', 'ada', 'retry', 'order-' || g,
        'the bank' || chr(10) || 'is up', 'done'
      FROM generate_series(1, 3) AS g`)

    const first = yield* on("audit --limit 2")
    assert.match(
      first.stdout,
      /^AT +ACTOR +ACTION +TARGET +OUTCOME +DETAILS\n2026-11-27 08:00:03Z  ada    retry   order-3  done     the bank is up\n/
    )
    assert.match(first.stdout, /\n\nMore follow: repeat the command with --cursor 2\n$/)
    const second: { readonly actions: ReadonlyArray<unknown>; readonly next: unknown } = JSON.parse(
      (yield* on("audit --cursor 2 --json")).stdout
    )
    assert.deepStrictEqual(second, {
      actions: [{
        id: "1",
        actor: "ada",
        action: "retry",
        target: "order-1",
        details: "the bank\nis up",
        outcome: "done",
        at: "2026-11-27T08:00:01.000Z"
      }],
      next: null
    })

    const bad = yield* on("audit --cursor x")
    assert.deepStrictEqual([bad.exitCode, bad.stdout], [2, ""])
    assert.include(bad.stderr, "cursor")
    assert.strictEqual((yield* on("audit --limit 0")).exitCode, 2)
  }))
