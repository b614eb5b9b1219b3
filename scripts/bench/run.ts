/** Runs a scenario in a process of its own, as from the command line, and prints what that prints. */
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import type { Result } from "./report.ts"

export interface Compared {
  readonly variant: string
  readonly ours: Result
  readonly peer?: Result
  /** How many times better ours is. */
  readonly ratio?: number | null
  /** Our rate by that of the variant with which the scenario compares. */
  readonly ofBaseline?: number
}

/** What a scenario ends with: its first variant, and all where it has several. */
interface Line extends Compared {
  readonly variants?: ReadonlyArray<Compared>
}

export interface Outcome {
  /** Empty if it printed no result. */
  readonly variants: ReadonlyArray<Compared>
  readonly hasFailed: boolean
}

export const run = async (...args: ReadonlyArray<string>): Promise<Outcome> => {
  const child = spawn(
    process.execPath,
    [fileURLToPath(new URL("main.js", import.meta.url)), ...args],
    { stdio: ["ignore", "pipe", "inherit"] }
  )
  const ended = new Promise<number | null>((resolve) => child.once("exit", resolve))
  let last = ""
  for await (const line of createInterface({ input: child.stdout })) {
    console.log(line)
    last = line
  }
  const hasFailed = await ended !== 0
  if (!last.startsWith("{")) return { variants: [], hasFailed }
  const line = JSON.parse(last) as Line
  return { variants: line.variants ?? [{ ...line, variant: "" }], hasFailed }
}
