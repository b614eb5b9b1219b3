/**
 * One process of a run, started and watched.
 */
import { spawn } from "node:child_process"
import { createWriteStream } from "node:fs"
import path from "node:path"
import { fileURLToPath } from "node:url"

export interface Process {
  readonly name: string
  readonly pid: number
  readonly startedAt: number
  /** Length of its locks; 0 without any. */
  lockMs: number
  /** Role of the database that the process logs in with. */
  role: string
  /** When it had ended; undefined while it runs. Milliseconds since the Unix epoch. */
  endedAt: number | undefined
  /** When it was asked to end or was killed; undefined without either. */
  endingAt: number | undefined
  /** How it ended. */
  code: number | null
  signal: NodeJS.Signals | null
  /** Spans in which it was stopped by SIGSTOP. */
  readonly frozen: Array<{ readonly from: number; to: number }>
  /** Rejects when the process ends before it is ready. */
  readonly ready: Promise<void>
  readonly ended: Promise<void>
  readonly kill: () => Promise<void>
  /** SIGTERM; after 30 seconds SIGKILL, and then false. */
  readonly terminate: () => Promise<boolean>
  readonly freeze: (ms: number) => Promise<void>
  readonly output: () => string
}

/** A clock that is never stepped, the one of the programs. */
export const now = (): number => performance.timeOrigin + performance.now()

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

export interface StartOptions {
  readonly program: "worker" | "client"
  readonly name: string
  readonly directory: string
  readonly options: object
  /** Steps its clock. */
  readonly clockSeed?: number | undefined
}

export const start = ({ clockSeed, directory, name, options, program }: StartOptions): Process => {
  const file = (name: string) => fileURLToPath(new URL(`../../test/programs/chaos/${name}.js`, import.meta.url))
  const preloaded = clockSeed === undefined ? [] : ["--import", file("clock")]
  const child = spawn(process.execPath, [...preloaded, file(program), JSON.stringify({ name, ...options })], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, CHAOS_CLOCK: String(clockSeed) }
  })
  const log = createWriteStream(path.join(directory, `${name}.log`))
  let output = ""
  let onReady = () => {}
  let onEarlyEnd = (_error: Error) => {}
  const ready = new Promise<void>((resolve, reject) => [onReady, onEarlyEnd] = [resolve, reject])
  ready.catch(() => {}) // callers that await it get the failure
  let isReady = false
  const collect = (chunk: Buffer) => {
    log.write(chunk)
    const all = `${output}${chunk.toString()}`
    output = all.slice(-4_000)
    if (isReady || !all.includes("ready\n")) return
    isReady = true
    onReady()
  }
  child.stdout.on("data", collect)
  child.stderr.on("data", collect)
  let onEnd = () => {}
  const self: Process = {
    name,
    pid: child.pid!,
    startedAt: now(),
    lockMs: 0,
    role: "",
    endedAt: undefined,
    endingAt: undefined,
    code: null,
    signal: null,
    frozen: [],
    ready,
    ended: new Promise((resolve) => (onEnd = resolve)),
    kill: () => {
      self.endingAt ??= now()
      child.kill("SIGKILL")
      return self.ended
    },
    terminate: async () => {
      self.endingAt ??= now()
      child.kill("SIGTERM")
      const inTime = await Promise.race([self.ended.then(() => true), sleep(30_000).then(() => false)])
      if (!inTime) await self.kill()
      return inTime
    },
    freeze: async (ms) => {
      const span = { from: now(), to: Infinity }
      self.frozen.push(span)
      child.kill("SIGSTOP")
      await sleep(ms)
      child.kill("SIGCONT")
      span.to = now()
    },
    output: () => output
  }
  child.on("exit", (code, signal) => {
    Object.assign(self, { endedAt: now(), code, signal })
    log.end()
    onEarlyEnd(new Error(`${name} ended before it was ready:\n${output}`))
    onEnd()
  })
  return self
}
