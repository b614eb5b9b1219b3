import { assert, it } from "@effect/vitest"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Schedules } from "duroxide-prisma/schedules"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { Report, Resize } from "../schedules/utils/suite.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"

const payload = { day: "any" }

it.live("schedules: listed, shown, paused, resumed, run, backfilled and deleted", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    const on = (args: string | ReadonlyArray<string>, options: Cli.Options = {}) =>
      Cli.run(args, { ...options, env: { DATABASE_URL: url, NO_COLOR: "1" } })
    const json = <A>(args: string) => Effect.map(on(`${args} --json`), ({ stdout }) => JSON.parse(stdout) as A)
    assert.strictEqual((yield* on("schedules")).stdout, "no schedules\n")

    const services = yield* Layer.build(
      PrismaProvider.layerDatabase({ url, migrate: "none" }).pipe(Layer.provide(Logger.layer([])))
    )
    const schedules = [
      Schedules.make("nightly", {
        timing: Schedules.cron("0 4 * * *", { timeZone: "Europe/Berlin" }),
        start: Report,
        payload,
        jitter: "1 minute"
      }),
      Schedules.make("resizes", { timing: Schedules.every("1 hour"), start: Resize, payload: () => ({ size: 1 }) })
    ]
    const runDue = Effect.provide(Schedules.runDue(schedules), services)
    yield* runDue

    const list = yield* on("schedules")
    assert.match(list.stdout, /^NAME +STATE +NEXT +LAST +TIMING +STARTS\n/)
    assert.match(
      list.stdout,
      /nightly +Active +\d{4}-\d\d-\d\d 0[23]:00:00Z +- +0 4 \* \* \* \(Europe\/Berlin\) +orchestration Report@1\.0\.0\n/
    )
    assert.match(list.stdout, /resizes +Active +.* +every 1h +task Resize\n/)
    const page = yield* json<{ schedules: ReadonlyArray<{ name: string }>; next: string | null }>("schedules --limit 1")
    assert.deepStrictEqual([page.schedules.map(({ name }) => name), page.next], [["nightly"], "nightly"])

    assert.strictEqual((yield* on(["schedules", "pause", "nightly", "--reason", "no data"])).stdout, "paused nightly\n")
    const again = yield* on("schedules pause nightly")
    assert.deepStrictEqual([again.exitCode, again.stderr], [1, "error: schedule nightly is paused already\n"])
    assert.match((yield* on("schedules show nightly")).stdout, /state +Paused\n[^]*paused +.*: no data\n/)
    assert.strictEqual((yield* on("schedules resume nightly")).stdout, "resumed nightly\n")
    assert.strictEqual((yield* on("schedules resume nightly")).exitCode, 1)

    // Without a terminal no one can confirm.
    assert.notStrictEqual((yield* on("schedules run nightly")).exitCode, 0)
    assert.strictEqual((yield* on("schedules run nightly --dry-run")).stdout, "would run nightly\n")
    const refused = yield* on("schedules run nightly", { terminal: 100, typed: () => Promise.resolve("n") })
    assert.strictEqual(refused.exitCode, 1)
    const { id } = yield* json<{ id: string }>("schedules run nightly --yes")
    yield* runDue
    assert.lengthOf(yield* sql("SELECT FROM instances WHERE instance_id = $1", [id]), 1)

    yield* sql("UPDATE schedules SET created_at = created_at - interval '10 days'")
    const dry = yield* on("schedules backfill nightly --from 2026-01-01 --to 2026-01-10T12:00Z --dry-run")
    assert.strictEqual(dry.stdout, "would start 10 occurrences of nightly\n")
    const future = yield* on("schedules backfill nightly --from 2090-01-01 --to 2090-01-10T12:00Z --yes")
    assert.strictEqual(future.stdout, "would start 0 occurrences of nightly\n")
    assert.strictEqual(
      (yield* on("schedules backfill nightly --from 2026-01-01 --to 2026-01-10T12:00Z --yes")).stdout,
      "asked for 10 occurrences of nightly\n"
    )
    yield* runDue
    const shown = yield* json<{ runs: ReadonlyArray<{ kind: string; outcome: string }> }>("schedules show nightly")
    assert.strictEqual(shown.runs.filter(({ kind }) => kind === "Backfill").length, 10)
    const text = (yield* on("schedules show nightly --runs 2 --next 3")).stdout
    assert.match(text, /next +\d{4}.*\n +\d{4}.*\n +\d{4}.*\n\n *RUN +OCCURRENCE +KIND +OUTCOME +STARTED\n/)
    assert.match(text, /jitter +1m\n/)
    assert.strictEqual((yield* on("schedules backfill nightly --from tomorrow --yes")).exitCode, 2)
    assert.strictEqual((yield* on("schedules backfill nightly --from now --to 2d --yes")).exitCode, 2)

    // As if no process had its code.
    yield* sql("UPDATE schedules SET fired_until = now() - interval '1 day', look_at = now() - interval '1 hour'")
    assert.match(
      (yield* on("schedules show resizes")).stdout,
      /state +Overdue\n[^]*problem +its payload is made by code/
    )

    assert.strictEqual((yield* on("schedules delete resizes --dry-run")).stdout, "would delete resizes\n")
    assert.strictEqual((yield* on("schedules delete resizes --yes")).stdout, "deleted resizes\n")
    for (const command of ["show", "pause", "resume", "run --yes", "backfill --from 1d --yes", "delete --yes"]) {
      const [verb, ...flags] = command.split(" ")
      const missing = yield* on(["schedules", verb!, "resizes", ...flags])
      assert.deepStrictEqual([missing.exitCode, missing.stderr], [1, "error: schedule resizes not found\n"], command)
    }
  }).pipe(Effect.scoped))
