/**
 * What logs, metrics, spans and the command line say of encrypted payloads: never what they hold, except with
 * `--decode` and the keys.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Metric from "effect/Metric"
import * as References from "effect/References"
import * as Tracer from "effect/Tracer"
import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as Cli from "../cli/cli.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import {
  Ask,
  begin,
  canary,
  Desk,
  encrypted,
  guest,
  hotel,
  keysText,
  Note,
  receipt,
  Ring,
  rows,
  Stay
} from "./utils.ts"

/** Everything that is logged, measured and traced. */
const observing = () => {
  const lines: Array<string> = []
  const spans: Array<Tracer.Span> = []
  const logger = Logger.make(({ cause, fiber, message }) => {
    const annotations = fiber.getRef(References.CurrentLogAnnotations)
    lines.push([String(message), Cause.pretty(cause), JSON.stringify(annotations)].join(" "))
  })
  const tracer = Tracer.make({
    span: (options) => {
      const span = new Tracer.NativeSpan(options)
      spans.push(span)
      return span
    }
  })
  return {
    lines,
    spans,
    layer: Layer.mergeAll(
      Logger.layer([logger]),
      Layer.succeed(References.MinimumLogLevel, "All" as const),
      Layer.succeed(Tracer.Tracer, tracer)
    )
  }
}

const inHotel = (url: string, observed: Layer.Layer<never>) =>
  hotel.pipe(
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer({ url, maxConnections: 3 })),
    Layer.provide(RuntimeConfig.layer({ shutdownTimeout: 1_000 })),
    Layer.provide(encrypted("k1")),
    Layer.provideMerge(observed)
  )

describe("Operators of encrypted payloads", () => {
  it.live("see keys and sizes; with --decode and the keys, what is stored", () =>
    Effect.gen(function*() {
      const database = yield* PgServer.database
      const { url } = database
      const { layer, lines, spans } = observing()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        for (const ends of ["well", "refused", "dead"] as const) {
          yield* begin(ends, ends)
          yield* Effect.raceFirst(
            Effect.exit(client.wait(Stay, ends)),
            Effect.forever(Effect.andThen(Effect.orDie(client.send(Ring, ends, guest)), Effect.sleep("50 millis")))
          )
        }
        // One whose handler of a request dies.
        yield* client.start(Desk, { instanceId: "asked", payload: guest })
        const failed = yield* Effect.flip(client.request(Ask, "asked", { name: `${canary} dead` }))
        assert.strictEqual(failed._tag, "RequestFailed")
        yield* client.send(Note, "asked", guest)
        yield* client.wait(Desk, "asked")
        // One that waits.
        yield* begin("waits")
        yield* waitUntil(Effect.map(
          database.sql("SELECT FROM history WHERE instance_id = 'waits' AND event_type = 'ExternalSubscribed'"),
          (rows) => rows.length > 0
        ))
      }).pipe(Effect.provide(inHotel(url, layer)), (run) =>
        Effect.gen(function*() {
          yield* run
          const metrics = JSON.stringify(yield* Metric.snapshot)
          assert.notInclude(metrics, canary)
        }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))
      assert.isAbove(lines.length, 20)
      assert.isAbove(spans.length, 20)
      const leak = lines.find((line) => line.includes(canary))
      assert.isUndefined(leak)
      // Where a handler has died is still said.
      assert.isTrue(lines.some((line) => /Request: handler died Error: what it says is a payload.*\n.*at /.test(line)))
      assert.isTrue(lines.some((line) => /activity died Error: what it says is a payload.*\n.*at /.test(line)))
      for (const { attributes, name, status } of spans) {
        assert.notInclude(name + JSON.stringify([...attributes]), canary)
        if (status._tag === "Ended" && Exit.isFailure(status.exit)) {
          assert.notInclude(Cause.pretty(status.exit.cause), canary)
        }
      }

      const env = { DATABASE_URL: url }
      const keys = { ...env, DUROXIDE_PAYLOAD_KEYS: keysText("k2", "k1") }
      const folder = mkdtempSync(join(tmpdir(), "payloads-"))
      writeFileSync(join(folder, "keys"), keysText("k1").replaceAll(",", "\n"))
      const commands = [
        "show well --full",
        "show well --full --json",
        "show dead",
        "show dead --json",
        "show refused",
        "show waits",
        "show waits --json",
        "list",
        "list --json",
        "list --status failed",
        "explain waits",
        "explain --json",
        "wait well",
        "wait well --json",
        "wait refused",
        "wait dead --json",
        "status --json",
        "queues",
        "orphans",
        "audit"
      ]
      for (const command of commands) {
        for (const terminal of [undefined, 80]) {
          for (const variables of [env, keys]) {
            const { stderr, stdout } = yield* Cli.run(command, {
              env: variables,
              ...(terminal !== undefined && { terminal })
            })
            assert.notInclude(stdout + stderr, canary, command)
            assert.notInclude(stdout + stderr, "$sealed", command)
          }
        }
      }
      const stdout = (command: string, options: Cli.Options) =>
        Effect.map(Cli.run(command, options), ({ stderr, stdout }) => stdout + stderr)
      assert.match(yield* stdout("show well", { env }), /output +encrypted \(key k1, \d+ bytes\)/)
      assert.match(yield* stdout("show dead", { env }), /error +died: encrypted \(key k1, \d+ bytes\)/)
      assert.match(yield* stdout("wait well", { env }), /^encrypted \(key k1, \d+ bytes\)\n/)
      assert.notMatch(yield* stdout(`list --error ${canary}`, { env }), /dead/)

      // With the keys, from the environment or a file.
      for (const [command, options] of [["", { env: keys }], [" --keys keys", { env, folder }]] as const) {
        assert.include(yield* stdout(`show well --full --decode${command}`, options), receipt)
        assert.include(yield* stdout(`show well --decode --json${command}`, options), `in house: ${canary}`)
        assert.include(yield* stdout(`show dead --decode${command}`, options), canary)
        assert.include(yield* stdout(`show refused --decode${command}`, options), canary)
        assert.strictEqual(
          (yield* Cli.run(`wait well --decode${command}`, options)).stdout,
          `${JSON.stringify(receipt)}\n`
        )
      }
      const refused = yield* Cli.run("show well --decode", { env })
      assert.strictEqual(refused.exitCode, 2)
      assert.include(refused.stderr, "--decode needs keys: set DUROXIDE_PAYLOAD_KEYS, or give a file with --keys")
      const other = { ...env, DUROXIDE_PAYLOAD_KEYS: keysText("k3") }
      assert.match(yield* stdout("show well --decode", { env: other }), /output +encrypted \(key k1,/)
      for (const text of ["k1:c2hvcnQ=", "nonsense"]) {
        const { exitCode, stderr } = yield* Cli.run("show well --decode", {
          env: { ...env, DUROXIDE_PAYLOAD_KEYS: text }
        })
        assert.strictEqual(exitCode, 2)
        assert.notInclude(stderr, "c2hvcnQ=")
      }

      // A new build is tried against what runs.
      const preflight = ["preflight", fileURLToPath(new URL("utils.ts", import.meta.url))]
      const blind = yield* Cli.run(preflight, { env })
      assert.include(blind.stdout, "encrypted (key k1,")
      assert.strictEqual(blind.exitCode, 5)
      const fits = yield* Cli.run([...preflight, "--decode"], { env: keys })
      assert.strictEqual(fits.exitCode, 0, fits.stdout + fits.stderr)
      assert.notInclude(fits.stdout + fits.stderr + blind.stdout + blind.stderr, canary)

      // What the command line sends is encrypted as well, where it has keys.
      const sent = yield* Cli.run(["signal", "waits", "Ring", JSON.stringify(guest), "--lossy"], { env: keys })
      assert.strictEqual(sent.exitCode, 0, sent.stderr)
      const started = yield* Cli.run(["start", "Stay", JSON.stringify({ guest }), "--id", "by-cli"], { env: keys })
      assert.strictEqual(started.exitCode, 0, started.stderr)
      const found = yield* rows(database)
      assert.deepStrictEqual(found.filter(({ row }) => row.includes(canary)), [])
      assert.isTrue(found.some(({ row }) => row.includes("by-cli") && row.includes("aes-256-gcm:k2")))
    }).pipe(Effect.scoped))
})
