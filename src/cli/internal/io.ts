/**
 * The process as a value: what a command reads of it and where it writes. Tests pass their own.
 */
import * as Context from "effect/Context"
import { createInterface } from "node:readline"

export interface Io {
  /** Without the names of Node and of the program. */
  readonly args: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string | undefined>>
  /** The current folder. */
  readonly folder: string
  readonly stdin: Input
  readonly stdout: Stream
  readonly stderr: Stream
}

/** What the commands themselves ask of it. */
export class Process extends Context.Service<Process, Io>()("duroxide-prisma/cli/Process") {}

export interface Stream {
  readonly write: (text: string) => void
  /** Resolves when everything is written, or the reader is gone; rejects if a part of it is lost. */
  readonly written: () => Promise<void>
  readonly isTerminal: boolean
  /** Columns of the terminal, if it is one; 0 if the terminal does not know. */
  readonly columns: number | undefined
  /** Lines of the terminal, as its columns. */
  readonly rows: number | undefined
}

export interface Input {
  readonly isTerminal: boolean
  /** The pieces of the input, as they arrive, until its end. */
  readonly pieces: () => AsyncIterable<string>
  /** The whole input, until it ends: Ctrl-D on a terminal. */
  readonly text: () => Promise<string>
  /** The next line, without its end; undefined if the input has ended, or the signal ends the wait. */
  readonly line: (signal: AbortSignal) => Promise<string | undefined>
  /**
   * Calls back for each key at once, Ctrl-C included, and shows none, until the result is called. Only on a terminal.
   */
  readonly keys: (pressed: (key: string) => void) => () => void
}

/** Makes the `Io` of the running program. */
export const ofProcess = (): Io => ({
  args: process.argv.slice(2),
  env: process.env,
  folder: process.cwd(),
  stdin: inputOf(process.stdin),
  stdout: streamOf(process.stdout),
  stderr: streamOf(process.stderr)
})

/** A stream of Node: a terminal, a pipe or a file. */
export const streamOf = (
  stream: NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number; readonly rows?: number }
): Stream => {
  let lost: NodeJS.ErrnoException | undefined
  const note = (error?: NodeJS.ErrnoException | null) => void (lost ??= error ?? undefined)
  stream.on("error", note)
  return {
    write: (text) => void stream.write(text, note),
    written: () =>
      new Promise((resolve, reject) => {
        // Writes end in order.
        stream.write("", (error) => {
          note(error)
          if (lost === undefined || lost.code === "EPIPE") resolve()
          else reject(lost)
        })
      }),
    isTerminal: stream.isTTY ?? false,
    get columns() {
      return stream.isTTY === true ? stream.columns : undefined
    },
    get rows() {
      return stream.isTTY === true ? stream.rows : undefined
    }
  }
}

/** Reads nothing before it is asked to. */
export const inputOf = (
  stream: NodeJS.ReadableStream & { readonly isTTY?: boolean; readonly setRawMode?: (isRaw: boolean) => unknown }
): Input => ({
  isTerminal: stream.isTTY ?? false,
  pieces: () => stream.setEncoding("utf8") as AsyncIterable<string>,
  text: async () => {
    let text = ""
    stream.setEncoding("utf8")
    for await (const chunk of stream) text += chunk
    return text
  },
  line: (signal) =>
    new Promise((resolve) => {
      const lines = createInterface({ input: stream })
      lines.once("line", (line) => {
        resolve(line)
        lines.close()
      })
      lines.once("close", () => resolve(undefined))
      signal.addEventListener("abort", () => lines.close(), { once: true })
    }),
  keys: (pressed) => {
    const receive = (typed: Buffer | string) => String(typed).split("").forEach((key) => pressed(key))
    stream.setRawMode?.(true)
    stream.on("data", receive).resume()
    return () => {
      stream.off("data", receive).pause()
      stream.setRawMode?.(false)
    }
  }
})
