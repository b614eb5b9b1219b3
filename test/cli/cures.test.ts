/**
 * What an operator sees of instances that a wrong deploy has blocked, or that have failed, and what brings them back.
 */
import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as RuntimeConfig from "../../src/RuntimeConfig.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Cli from "./cli.ts"

const Charge = Activity.make("Charge", { success: Schema.String, error: Schema.String })
const Reserve = Activity.make("Reserve")
const Book = Orchestration.make("Book", { success: Schema.String, error: Schema.String })

/** Where no process runs, a sleep of an instance ends at once. */
const endSleep = "UPDATE orchestrator_queue SET visible_at = now() WHERE instance_id = $1"

const bank = { declines: true, keys: new Array<string>() }

const application = (
  url: string,
  build: string,
  program: () => Effect.Effect<string, string, Orchestration.Instance>,
  options: RuntimeConfig.Options = {}
) =>
  Runtime.layer({ orchestrations: [Book], activities: [Charge, Reserve] }).pipe(
    Layer.provide([
      Book.toLayer(program),
      Reserve.toLayer(() => Effect.void),
      Charge.toLayer(() =>
        Effect.flatMap(Activity.Call, ({ idempotencyKey }) => {
          bank.keys.push(idempotencyKey)
          return bank.declines ? Effect.fail("declined") : Effect.succeed("paid")
        })
      )
    ]),
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer({ url })),
    Layer.provide(RuntimeConfig.layer({ build, ...options })),
    Layer.provideMerge(Logger.layer([]))
  )

it.layer(PgServer.layer, { excludeTestServices: true })("Cures", (it) => {
  it.effect("an instance that has failed runs again, and its effect happens once", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.PgServer
      const on = (args: string) => Cli.run(`${args} --url ${url}`)
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* Effect.exit(client.execute(Book, { instanceId: "trip-1" }))
        const running = yield* on("retry unknown")
        assert.strictEqual(running.exitCode, 1)
        assert.include(running.stderr, "instance unknown not found")
        bank.declines = false
        const plan = yield* on("retry trip-1 --dry-run")
        assert.deepStrictEqual([plan.exitCode, plan.stdout], [
          0,
          "would retry trip-1 from event 2: events 3 to 4 are removed\n" +
          "  runs again, with the same idempotency key: Charge (event 2)\n"
        ])
        const early = yield* on("retry trip-1 --from 1 --dry-run --json")
        assert.deepStrictEqual(JSON.parse(early.stdout), {
          dryRun: true,
          instances: [
            {
              instanceId: "trip-1",
              from: 1,
              removed: [2, 4],
              again: [],
              forgotten: [{ name: "Charge", eventId: 2 }],
              tasks: []
            }
          ],
          warnings: []
        })
        assert.strictEqual((yield* client.status("trip-1"))._tag, "Failed")
        const retried = yield* on("retry trip-1 --reason bank")
        assert.deepStrictEqual([retried.exitCode, retried.stdout], [
          0,
          "retried trip-1: it continues when a process takes it\n"
        ])
        assert.strictEqual(yield* client.wait(Book, "trip-1"), "paid")
        assert.lengthOf(bank.keys, 2)
        assert.strictEqual(bank.keys[0], bank.keys[1])
        const again = yield* on("retry trip-1")
        assert.strictEqual(again.exitCode, 1)
        assert.include(again.stderr, "instance trip-1 cannot be retried: it has completed")
      }).pipe(Effect.provide(application(url, "one", Charge.execute)))
    }))

  it.effect("after a retry, an activity runs since then, not since it was scheduled first", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.PgServer
      bank.declines = true
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* Effect.exit(client.execute(Book, { instanceId: "trip-0" }))
      }).pipe(Effect.provide(application(url, "one", Charge.execute)))
      // No process runs: the activity waits. An hour has passed.
      yield* sql(
        `UPDATE history
         SET event_data = jsonb_set(event_data::jsonb, '{timestamp_ms}', to_jsonb((event_data::jsonb ->> 'timestamp_ms')::bigint - 3600000))::text
         WHERE instance_id = 'trip-0'`
      )
      // The activity is called again, and no process may run it.
      assert.strictEqual((yield* Cli.run(`pause --activity Charge --url ${url}`)).exitCode, 0)
      assert.strictEqual((yield* Cli.run(`retry trip-0 --url ${url}`)).exitCode, 0)
      const since = Effect.map(Cli.run(`show trip-0 --json --url ${url}`), ({ stdout }) => {
        const { waitsFor } = JSON.parse(stdout) as { waitsFor: ReadonlyArray<{ since: string }> }
        return waitsFor.map(({ since }) => Date.parse(since))
      })
      yield* waitUntil(
        Effect.map(sql("SELECT FROM worker_queue WHERE instance_id = 'trip-0'"), ({ length }) => length > 0)
      ).pipe(Effect.provide(application(url, "one", Charge.execute)))
      const [of, ...others] = yield* since
      assert.isEmpty(others)
      assert.isAbove(of!, Date.now() - 600_000)
      const explained = yield* Cli.run(`explain trip-0 --url ${url}`)
      assert.match(explained.stdout, /Charge, which is paused with activity Charge, for \d+ s/)
      assert.strictEqual((yield* Cli.run(`resume --activity Charge --url ${url}`)).exitCode, 0)
      assert.strictEqual((yield* Cli.run(`delete trip-0 --force --yes --url ${url}`)).exitCode, 0)
    }))

  it.effect(
    "a blocked instance is listed and shown with its cure, and continues from an earlier event",
    () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.PgServer
        const on = (args: string) => Cli.run(`${args} --url ${url}`)
        bank.declines = false
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          yield* client.start(Book, { instanceId: "trip-2" })
          yield* waitUntil(Effect.map(on("show trip-2"), ({ stdout }) => stdout.includes("timer")))
        }).pipe(Effect.provide(application(url, "one", () => Effect.as(Effect.sleep("1 day"), "slept"))))
        yield* sql(endSleep, ["trip-2"])
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          yield* waitUntil(Effect.map(on("list --status blocked"), ({ stdout }) => stdout.includes("trip-2")))
          const list = yield* on("list --status blocked")
          assert.match(list.stdout, /trip-2 +Book +1\.0\.0 +Running, blocked .* event 2: history has timer/)
          const shown = yield* on("show trip-2")
          assert.match(shown.stdout, /^status +Running, blocked$/m)
          assert.match(
            shown.stdout,
            /^blocked by +HistoryDiffers: event 2: history has timer, the code asks for activity "Reserve"$/m
          )
          assert.match(shown.stdout, /^cure .*Bring the old code back.*: retry trip-2 --from 1$/m)
          assert.match(shown.stdout, /^tried +\d+ times? since .* by build two$/m)
          const json = JSON.parse((yield* on("show trip-2 --json")).stdout)
          assert.deepInclude(json.blocked, { reason: "HistoryDiffers", eventId: 2, build: "two" })
          assert.strictEqual(JSON.parse((yield* on("status --json")).stdout).blocked, 1)
          assert.match((yield* on("status")).stdout, /^health +healthy, apart from blocked instances$/m)
          const retried = yield* on("retry trip-2 --from 1 --json")
          assert.deepInclude(JSON.parse(retried.stdout), { dryRun: false })
          assert.strictEqual(yield* client.wait(Book, "trip-2"), "reserved")
        }).pipe(Effect.provide(application(url, "two", () => Effect.as(Reserve.execute(), "reserved"))))
      })
  )

  it.effect("an interrupted instance is shown while it cleans up, and can be terminated then", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.PgServer
      const on = (...args: ReadonlyArray<string>) => Cli.run([...args, "--url", url])
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Book, { instanceId: "trip-3" })
        yield* waitUntil(Effect.map(on("show", "trip-3"), ({ stdout }) => stdout.includes("timer")))
        const refused = yield* on("interrupt", "trip-3", "--deadline", "soon")
        assert.strictEqual(refused.exitCode, 2)
        assert.include(refused.stderr, "--deadline")
        const interrupted = yield* on("interrupt", "trip-3", "--reason", "rain", "--deadline", "1 hour", "--json")
        assert.deepStrictEqual(JSON.parse(interrupted.stdout), {
          action: "interrupted",
          instanceId: "trip-3",
          reason: "rain",
          deadline: "1 hour"
        })
        yield* waitUntil(Effect.map(on("show", "trip-3"), ({ stdout }) => stdout.includes("interrupted  ")))
        const shown = yield* on("show", "trip-3")
        assert.match(shown.stdout, /^interrupted +\S+ \S+, \d+ s ago: rain$/m)
        assert.match(shown.stdout, /^child +Book trip-3::sub::\d+ +#\d+ +interrupted, for /m)
        assert.match(shown.stdout, /^termination +- +- +due /m)
        assert.match(shown.stdout, /^ *\d+ +\S+ +interrupted +rain$/m)
        const json = JSON.parse((yield* on("show", "trip-3", "--json")).stdout)
        assert.strictEqual(json.interrupted.reason, "rain")
        const terminated = yield* on("terminate", "trip-3", "--reason", "it hangs")
        assert.include(terminated.stdout, "terminated trip-3")
        const error = yield* Effect.flip(client.wait(Book, "trip-3"))
        assert.deepInclude(error, { _tag: "InstanceCancelled", reason: "it hangs" })
        yield* waitUntil(
          Effect.map(
            on("list", "--parent", "trip-3", "--json"),
            ({ stdout }) => JSON.parse(stdout).instances[0]?.status === "Cancelled"
          )
        )
        for (const command of ["interrupt", "terminate"]) {
          const late = yield* on(command, "trip-3")
          assert.strictEqual(late.exitCode, 1)
          assert.include(late.stderr, "instance trip-3 has ended: Cancelled")
          assert.strictEqual((yield* on(command, "unknown")).exitCode, 1)
        }
      }).pipe(
        Effect.provide(
          application(
            url,
            "one",
            () =>
              Effect.flatMap(Orchestration.Instance, ({ instanceId }) =>
                instanceId.includes("sub")
                  ? Effect.as(Effect.ensuring(Effect.sleep("1 day"), Effect.sleep("1 day")), "")
                  : Effect.tap(Book.execute(), Effect.sleep("1 second")).pipe(
                    Effect.raceFirst(Effect.as(Effect.sleep("1 day"), ""))
                  ))
          )
        )
      )
    }))

  it.effect("a signal that no build can read is shown when it is set aside, and sent again", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.PgServer
      const on = (...args: ReadonlyArray<string>) => Cli.run([...args, "--url", url])
      const Note = Signal.make("Note", { payload: { text: Schema.String } })
      const Foreign = Signal.make("Note", { payload: Schema.Unknown })
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Book, { instanceId: "trip-4" })
        yield* waitUntil(Effect.map(on("show", "trip-4"), ({ stdout }) => stdout.includes("signal awaited")))
        yield* client.send(Foreign, "trip-4", 17)
        yield* waitUntil(Effect.map(on("show", "trip-4"), ({ stdout }) => stdout.includes("signal set aside")))
        const shown = yield* on("show", "trip-4")
        assert.match(
          shown.stdout,
          /^Signals set aside, because no process could read them \(redrive trip-4 --event <event> sends one again\)$/m
        )
        assert.match(shown.stdout, /^Note +#3 +\S+ \S+, \d+ s ago +-$/m)
        assert.match(shown.stdout, /signal set aside +#3$/m)
        const { setAside } = JSON.parse((yield* on("show", "trip-4", "--json")).stdout)
        assert.deepInclude(setAside[0], { name: "Note", eventId: 3 })
        const refused = yield* on("redrive", "trip-4", "--event", "1")
        assert.strictEqual(refused.exitCode, 2)
        assert.include(refused.stderr, "event 1 of execution 1 is not a signal that was set aside")
      }).pipe(
        Effect.provide(
          application(url, "one", () => Effect.map(Note.wait, ({ text }) => text), { unreadableSignalTimeout: 0 })
        )
      )
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const redriven = yield* on("redrive", "trip-4", "--event", "3")
        assert.deepStrictEqual([redriven.exitCode, redriven.stdout], [
          0,
          "sent the signal of event 3 to trip-4 again\n"
        ])
        assert.strictEqual(yield* client.wait(Book, "trip-4"), "17")
        const late = yield* on("redrive", "trip-4", "--event", "3")
        assert.strictEqual(late.exitCode, 1)
        assert.include(late.stderr, "instance trip-4 has ended")
      }).pipe(Effect.provide(application(url, "two", () => Effect.map(Foreign.wait, String))))
    }))

  it.effect(
    "a dry run of a retry says what would happen twice, and that the build that runs could not continue others",
    () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.PgServer
        const on = (args: string) => Cli.run(`${args} --url ${url}`)
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          bank.declines = false
          yield* client.start(Book, { instanceId: "deploy-0" })
          yield* waitUntil(Effect.map(on("show deploy-0"), ({ stdout }) => stdout.includes("timer")))
          bank.declines = true
          yield* Effect.exit(client.execute(Book, { instanceId: "deploy-1" }))
          yield* Effect.exit(client.execute(Book, { instanceId: "deploy-2" }))
          // Nothing that runs could not continue it.
          assert.deepStrictEqual(JSON.parse((yield* on("retry deploy-1 --dry-run --json")).stdout).warnings, [])
        }).pipe(
          Effect.provide(
            application(url, "1.0", () => Effect.andThen(Charge.execute(), Effect.as(Effect.sleep("1 day"), "")))
          )
        )
        yield* sql(endSleep, ["deploy-0"])
        const warning = "1 instance of Book 1.0.0 is blocked: build 2.0, which runs now, could not continue it."
        const alike = (whom: string) =>
          `${warning} ${whom} the same event 2 where it stopped, and may block as well. Ask the developers first.`
        yield* Effect.gen(function*() {
          yield* waitUntil(Effect.map(on("list --status blocked"), ({ stdout }) => stdout.includes("deploy-0")))
          assert.strictEqual(
            (yield* on("retry deploy-1 --dry-run")).stdout,
            "would retry deploy-1 from event 2: events 3 to 4 are removed\n" +
              "  runs again, with the same idempotency key: Charge (event 2)\n" +
              `  warning: ${alike("This one has")}\n`
          )
          // The code that runs decides what follows: no event that it could not continue stays.
          assert.strictEqual(
            (yield* on("retry deploy-1 --from 1 --dry-run")).stdout,
            "would retry deploy-1 from event 1: events 2 to 4 are removed\n" +
              "  runs a second time, if the code still calls it, with a new idempotency key, or as a further try of a " +
              "call that stays, with the key of that; what it did before stays done: Charge (event 2)\n"
          )
          assert.strictEqual(
            (yield* on("retry deploy-0 --dry-run")).stdout.split("\n")[1],
            "  warning: deploy-0 is blocked at an event that stays: build 2.0, which runs now, could not continue it, and " +
              "may block it again."
          )
          assert.strictEqual(
            (yield* on("retry --id-prefix deploy --status failed --dry-run")).stdout,
            "would retry 2 instances: deploy-1, deploy-2\n" +
              "  runs again, with the same idempotency key: 2 calls of Charge\n" +
              `  warning: ${alike("2 of these have")}\n`
          )
          const asked = yield* Cli.run(`retry --id-prefix deploy --status failed --url ${url}`, {
            terminal: 120,
            typed: () => Promise.resolve("n")
          })
          assert.include(asked.stderr, `2 calls of Charge\n  warning: ${alike("2 of these have")}`)
          const { plan } = JSON.parse((yield* on("retry --id-prefix deploy --dry-run --json")).stdout)
          assert.deepInclude(plan, { looked: 3, refused: 0, again: [{ name: "Charge", calls: 2 }], forgotten: [] })
          assert.lengthOf(plan.warnings, 2)
          // This code has begun it: its event 2 is another one.
          yield* Effect.exit((yield* Client.Client).execute(Book, { instanceId: "deploy-3" }))
          assert.deepStrictEqual(JSON.parse((yield* on("retry deploy-3 --dry-run --json")).stdout).warnings, [])
          const mixed = JSON.parse((yield* on("retry --id-prefix deploy --status failed --dry-run --json")).stdout)
          assert.deepStrictEqual(mixed.plan.warnings, [alike("2 of these have")])
        }).pipe(
          Effect.provide(
            application(url, "2.0", () => Effect.andThen(Reserve.execute(), Effect.as(Charge.execute(), "")))
          )
        )
        // No process runs that could block it.
        assert.deepStrictEqual(JSON.parse((yield* on("retry deploy-1 --dry-run --json")).stdout).warnings, [])
        assert.strictEqual((yield* on("delete --id-prefix deploy --status failed --yes")).exitCode, 0)
        assert.strictEqual((yield* on("delete deploy-0 --force --yes")).exitCode, 0)
      })
  )
})
