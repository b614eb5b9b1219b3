/**
 * The process as a value: what a command reads of it and where it writes. Tests pass their own.
 */
export interface Io {
  /** Without the names of Node and of the program. */
  readonly args: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string | undefined>>
  readonly stdout: Stream
  readonly stderr: Stream
}

export interface Stream {
  readonly write: (text: string) => void
  /** Resolves when everything is written, or the reader is gone; rejects if a part of it is lost. */
  readonly written: () => Promise<void>
  readonly isTerminal: boolean
  /** Columns of the terminal, if it is one; 0 if the terminal does not know. */
  readonly columns: number | undefined
}

/** Makes the `Io` of the running program. */
export const ofProcess = (): Io => ({
  args: process.argv.slice(2),
  env: process.env,
  stdout: streamOf(process.stdout),
  stderr: streamOf(process.stderr)
})

/** A stream of Node: a terminal, a pipe or a file. */
export const streamOf = (
  stream: NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number }
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
    }
  }
}
