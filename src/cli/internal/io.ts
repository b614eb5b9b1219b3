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
  readonly isTerminal: boolean
  /** Columns of the terminal, if it is one. */
  readonly columns: number | undefined
}

/** That of the running program. */
export const ofProcess = (): Io => ({
  args: process.argv.slice(2),
  env: process.env,
  stdout: streamOf(process.stdout),
  stderr: streamOf(process.stderr)
})

// internal

const streamOf = (stream: NodeJS.WriteStream): Stream => ({
  write: (text) => void stream.write(text),
  isTerminal: stream.isTTY ?? false,
  get columns() {
    return stream.isTTY ? stream.columns : undefined
  }
})
