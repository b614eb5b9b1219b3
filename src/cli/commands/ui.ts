import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { randomBytes } from "node:crypto"
import { userInfo } from "node:os"
import type * as PrismaProvider from "../../prisma/PrismaProvider.ts"
import { misused } from "../internal/failure.ts"
import { Process } from "../internal/io.ts"
import type { Io } from "../internal/io.ts"
import { Output } from "../internal/Output.ts"
import * as Programs from "../internal/programs.ts"
import { Settings } from "../internal/settings.ts"
import * as Store from "../internal/store.ts"

export const ui = Command.make("ui", {
  module: Flag.String("module").pipe(
    Flag.withMetavar("<path>"),
    Flag.withDescription("Module that exports orchestrations and signals: the dashboard makes forms of their payloads"),
    Flag.optional
  ),
  port: Flag.Int("port").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("Port to listen on, 0 for a free one. Defaults to 4983"),
    Flag.filter((n) => n >= 0 && n <= 65_535, (n) => `a number from 0 to 65535, not ${n}`),
    Flag.withDefault(4983)
  ),
  host: Flag.String("host").pipe(
    Flag.withMetavar("<address>"),
    Flag.withDescription("Address to listen on. Defaults to 127.0.0.1: only this machine"),
    Flag.withDefault("127.0.0.1")
  ),
  readOnly: Flag.Boolean("read-only").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Change nothing"),
    Flag.withDefault(false)
  ),
  hidePayloads: Flag.Boolean("hide-payloads").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Show no payloads: inputs, results, data of signals, values"),
    Flag.withDefault(false)
  )
}, (flags) => Effect.provide(Effect.scoped(run(flags)), Store.layerForDashboard)).pipe(
  Command.withShortDescription("Serve the dashboard for operators on this machine"),
  Command.withDescription(
    "Serve the dashboard for operators, until Ctrl-C: what happens, what waits, why, and what to do about it. It prints a link " +
      "with a token that is good as long as it runs; DUROXIDE_UI_TOKEN sets another one. In a service, mount " +
      "Dashboard.layer instead."
  ),
  Command.withExamples([
    { command: "duroxide-prisma ui" },
    {
      command: "duroxide-prisma ui --module ./dist/definitions.js --read-only",
      description: "With forms for its payloads, and without changes"
    }
  ])
)

// internal

/** A user without a name of its own is common in containers. */
const userName = (env: Io["env"]): string => {
  try {
    return userInfo().username
  } catch {
    return env["USER"] ?? "operator"
  }
}

const run = Effect.fnUntraced(function*({ hidePayloads, host, module, port: wanted, readOnly }: {
  readonly module: Option.Option<string>
  readonly port: number
  readonly host: string
  readonly readOnly: boolean
  readonly hidePayloads: boolean
}) {
  const { env } = yield* Process
  const { answer } = yield* Output
  const { address, schema } = yield* (yield* Settings).target
  const given = yield* Config.String("DUROXIDE_UI_TOKEN").pipe(Config.withDefault(""))
  if (given !== "" && !/^[\x20-\x7e]{16,}$/.test(given)) {
    return yield* misused(
      "DUROXIDE_UI_TOKEN has fewer than 16 characters, or others than ASCII: choose another one, or unset it"
    )
  }
  const token = given === "" ? randomBytes(24).toString("base64url") : given
  const definitions = yield* Option.match(module, {
    onNone: () => Effect.succeed({ orchestrations: [], signals: [] }),
    onSome: Programs.loadDefinitions
  })
  // Loaded when it is asked for: the other commands start faster without it.
  const { Dashboard, serve } = yield* Effect.promise(() => import("../internal/dashboard.ts"))
  const store = yield* Effect.context<PrismaProvider.Services>()
  const port = yield* serve(
    Dashboard.layer({
      path: "/",
      access: Dashboard.bearer([{
        name: userName(env),
        role: readOnly ? "read" : "operate",
        token: Redacted.make(token)
      }]),
      payloads: hidePayloads ? "hide" : "show",
      ...definitions
    }).pipe(Layer.provide(Layer.succeedContext(store))),
    { host, port: wanted }
  )
  const origin = `http://${host.includes(":") ? `[${host}]` : host}:${port}/`
  const url = given === "" ? `${origin}#token=${token}` : origin
  yield* answer({
    json: { url, address, schema, readOnly, hidePayloads },
    text: [
      url,
      `shows ${address}, schema ${schema}, until Ctrl-C` +
      `${readOnly ? "; it changes nothing" : ""}${hidePayloads ? "; it shows no payloads" : ""}`
    ]
  })
  return yield* Effect.never
})
