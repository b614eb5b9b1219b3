/**
 * The command line: its commands, and the way from arguments to an exit code.
 */
import * as Cause from "effect/Cause"
import * as CliConfig from "effect/cli/CliConfig"
import * as CliError from "effect/cli/CliError"
import * as CliOutput from "effect/cli/CliOutput"
import * as Command from "effect/cli/Command"
import * as GlobalFlag from "effect/cli/GlobalFlag"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { readFileSync } from "node:fs"
import { audit } from "./commands/audit.ts"
import { complete, fail as failing } from "./commands/complete.ts"
import { count } from "./commands/count.ts"
import { deletion } from "./commands/delete.ts"
import { doctor } from "./commands/doctor.ts"
import { explain } from "./commands/explain.ts"
import { fork } from "./commands/fork.ts"
import { importSqlite } from "./commands/importSqlite.ts"
import { interrupt, terminate } from "./commands/interrupt.ts"
import { limits } from "./commands/limits.ts"
import { list } from "./commands/list.ts"
import { mcp } from "./commands/mcp.ts"
import { migrate } from "./commands/migrate.ts"
import { pause, resume } from "./commands/pause.ts"
import { preflight } from "./commands/preflight.ts"
import { processes } from "./commands/processes.ts"
import { queues } from "./commands/queues.ts"
import { redrive } from "./commands/redriveSignal.ts"
import { request } from "./commands/request.ts"
import { retry } from "./commands/retry.ts"
import { schedules } from "./commands/schedules.ts"
import { show } from "./commands/show.ts"
import { signal } from "./commands/signal.ts"
import { start } from "./commands/start.ts"
import { status } from "./commands/status.ts"
import { stream } from "./commands/stream.ts"
import { tasks } from "./commands/tasks.ts"
import { top } from "./commands/top.ts"
import { ui } from "./commands/ui.ts"
import { verifySqlite } from "./commands/verifySqlite.ts"
import { wait } from "./commands/wait.ts"
import { watch } from "./commands/watch.ts"
import * as Completions from "./internal/completions.ts"
import { exitCodes, ofCause, ofLostOutput, ofUsage } from "./internal/failure.ts"
import type { Failure } from "./internal/failure.ts"
import * as help from "./internal/help.ts"
import { Process } from "./internal/io.ts"
import type { Io } from "./internal/io.ts"
import * as logging from "./internal/logging.ts"
import * as Output from "./internal/Output.ts"
import * as Platform from "./internal/platform.ts"
import { Runner } from "./internal/runner.ts"
import * as Settings from "./internal/settings.ts"
import { oneLine } from "./internal/table.ts"

const imports = Command.make("import").pipe(
  Command.withDescription("Import a store of Duroxide"),
  Command.withSubcommands([importSqlite])
)

const verify = Command.make("verify").pipe(
  Command.withDescription("Compare an imported store with its source"),
  Command.withSubcommands([verifySqlite])
)

/** The whole tree. */
const root = (io: Io) =>
  Command.make("duroxide-prisma").pipe(
    Command.withDescription("Look after a store of duroxide-prisma: migrate it, see what is in it, pause and mend it."),
    Command.withSubcommands([
      migrate,
      status,
      doctor,
      list,
      count,
      show,
      explain,
      queues,
      tasks,
      schedules,
      processes,
      top,
      audit,
      ui,
      mcp,
      start,
      signal,
      request,
      wait,
      watch,
      stream,
      complete,
      failing,
      preflight,
      limits,
      pause,
      resume,
      retry,
      redrive,
      fork,
      interrupt,
      terminate,
      deletion,
      imports,
      verify
    ]),
    Command.provide(Settings.layer(io)),
    Command.withGlobalFlags(Settings.flags)
  )

/**
 * Runs what the arguments say, and returns the exit code. Everything it prints goes through `io`.
 */
export const run = (io: Io): Effect.Effect<number> => {
  const output = Output.make(io)
  const fail = ({ code, exitCode, message }: Failure) =>
    output.note(`${output.errorStyle.red("error")}: ${oneLine(message)}`, { error: { code, message } }).pipe(
      Effect.as(exitCode)
    )
  /** Why the answer could not be written; undefined if it was. */
  const lost = Effect.promise(() =>
    io.stdout.written().then(() => undefined, (thrown: NodeJS.ErrnoException) => thrown)
  )
  const cluster = clusterIn(io.args)
  if (cluster !== undefined) return fail({ code: "Usage", exitCode: exitCodes.usage, message: cluster })
  return Command.runWith(root(io), { version, renderErrors: false })(io.args).pipe(
    Effect.as(0),
    Effect.catchCause((cause) => {
      const help = Option.getOrUndefined(Cause.findErrorOption(cause))
      return isHelp(help) ? fail(ofUsage(help.errors, help.commandPath)) : fail(ofCause(cause))
    }),
    Effect.flatMap((exitCode) =>
      Effect.flatMap(lost, (error) => error === undefined ? Effect.succeed(exitCode) : fail(ofLostOutput(error)))
    ),
    Effect.provide(
      Layer.mergeAll(
        Platform.layer(io),
        Layer.succeed(Output.Output, output),
        Layer.succeed(Process, io),
        Layer.succeed(Runner, { version, run }),
        CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, Completions.flag] }),
        CliOutput.layer(help.formatter(output)),
        CliOutput.layerPresenter({ present }),
        logging.layer(output)
      )
    ),
    Effect.provideService(Console.Console, consoleOf(io))
  )
}

// internal

/**
 * What to write instead, if an argument would be read as several flags of one letter: there are `-h` and `-v` alone, so
 * `--reason "-very wrong"` would print the version, and do nothing.
 */
const clusterIn = (args: ReadonlyArray<string>): string | undefined => {
  const end = args.indexOf("--")
  const found = args.slice(0, end === -1 ? args.length : end).find((arg) => /^-[^-]./.test(arg))
  return found === undefined
    ? undefined
    : `${found} begins with "-": write --flag=${found} to give a flag this value, and -- before it if it is an id`
}

/** The package's: both `src` and `dist` stand beside its package.json. */
const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  readonly version: string
}

const isHelp = (error: unknown): error is CliError.ShowHelp => CliError.isCliError(error) && error._tag === "ShowHelp"

/** Help that was asked for is an answer. A bad invocation gets one line instead, from `run`. */
const present: CliOutput.Presenter["present"] = (event) =>
  event._tag === "Version" || (event._tag === "Help" && event.reason === "Requested")
    ? CliOutput.defaultPresenter.present(event)
    : Effect.void

const consoleOf = ({ stderr, stdout }: Io): Console.Console => ({
  ...globalThis.console,
  log: (...args) => stdout.write(`${args.join(" ")}\n`),
  error: (...args) => stderr.write(`${args.join(" ")}\n`)
})
