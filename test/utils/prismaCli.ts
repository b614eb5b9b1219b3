import * as Effect from "effect/Effect"
import { execFile } from "node:child_process"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("../..", import.meta.url))

/** How a command ended, and all it wrote. */
export interface Finished {
  readonly exitCode: number
  readonly output: string
}

/** Runs a Node program of the repository until it exits. */
export const node = (
  program: string,
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>> = {}
): Effect.Effect<Finished> =>
  Effect.callback((resume) => {
    const child = execFile(
      process.execPath,
      [program, ...args],
      // As on a machine without access to Prisma's servers, and without colours.
      { cwd: root, env: { ...process.env, PRISMA_OFFLINE: "1", NO_COLOR: "1", ...env }, encoding: "utf8" },
      (error, stdout, stderr) =>
        resume(Effect.succeed({ exitCode: error === null ? 0 : Number(error.code ?? 1), output: stdout + stderr }))
    )
    return Effect.sync(() => child.kill())
  })

/** Runs the real Prisma CLI on a database. */
export const prismaCli = (url: string, ...args: ReadonlyArray<string>): Effect.Effect<Finished> =>
  node("node_modules/prisma/build/index.js", args, { DATABASE_URL: url })
