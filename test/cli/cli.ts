/**
 * The command line in this process: with the arguments and variables of the test, and what it prints.
 */
import * as Effect from "effect/Effect"
import { devNull } from "node:os"
import { run as runCommand } from "../../src/cli/command.ts"
import type { Io } from "../../src/cli/internal/io.ts"

export interface Ended {
  readonly exitCode: number
  readonly stdout: string
  readonly stderr: string
}

export interface Options {
  /** Variables of the process; it has no others. */
  readonly env?: Readonly<Record<string, string>>
  /** The current folder. Defaults to one that does not exist. */
  readonly folder?: string
  /** Width of the terminal that both outputs are, instead of files. */
  readonly terminal?: number
  /** Lines of that terminal. Defaults to 30. */
  readonly rows?: number
  /** The next line that a person types on the terminal. Defaults to none: standard input has ended. */
  readonly typed?: () => Promise<string>
  /** Called when keys are to be reported, with how to press one. */
  readonly onKeys?: (press: (key: string) => void) => void
  /** What standard input has. Defaults to nothing. */
  readonly input?: string
  /** What standard input has, piece by piece, instead of `input`. */
  readonly pieces?: () => AsyncIterable<string>
  /** Called with what it writes. */
  readonly onPrint?: (text: string, to: "stdout" | "stderr") => void
  /** Why standard output loses what is written. */
  readonly lost?: Error
}

/** The arguments are split at spaces, unless they are a list. */
export const run = (args: string | ReadonlyArray<string>, options: Options = {}): Effect.Effect<Ended> =>
  Effect.suspend(() => {
    const printed = { stdout: "", stderr: "" }
    const stream = (name: "stdout" | "stderr"): Io["stdout"] => ({
      write: (text) => {
        printed[name] += text
        options.onPrint?.(text, name)
      },
      written: () => options.lost === undefined ? Promise.resolve() : Promise.reject(options.lost),
      isTerminal: options.terminal !== undefined,
      columns: options.terminal,
      rows: options.terminal === undefined ? undefined : options.rows ?? 30
    })
    const io: Io = {
      args: withoutEnvFile(typeof args === "string" ? args.split(" ") : args, options),
      env: options.env ?? {},
      folder: options.folder ?? "/no/such/folder",
      stdin: {
        isTerminal: options.terminal !== undefined,
        pieces: options.pieces ?? (async function*() {
          yield options.input ?? ""
        }),
        text: () => Promise.resolve(options.input ?? ""),
        keys: (pressed) => {
          options.onKeys?.(pressed)
          return () => {}
        },
        line: () => options.typed?.() ?? Promise.resolve(undefined)
      },
      stdout: stream("stdout"),
      stderr: stream("stderr")
    }
    return Effect.map(runCommand(io), (exitCode) => ({ exitCode, ...printed }))
  })

// internal

/** A `.env` must not name a database for the test, unless it says where. */
const withoutEnvFile = (args: ReadonlyArray<string>, { folder }: Options) =>
  args.includes("--env-file") || folder !== undefined ? args : ["--env-file", devNull, ...args]
