/**
 * Where an embedded server keeps its files, and what these say about it.
 */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { execFile } from "node:child_process"
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import { promisify } from "node:util"

/** In the current folder. */
export const defaultDirectory = ".duroxide/postgres"

export interface Files {
  readonly directory: string
  readonly data: string
  readonly logFile: string
  readonly passwordFile: string
  /** The port of the last run. */
  readonly portFile: string
}

export const filesIn = (directory: string): Files => {
  const data = path.join(directory, "data")
  return {
    directory,
    data,
    logFile: path.join(directory, "log"),
    passwordFile: path.join(data, "duroxide.password"),
    portFile: path.join(data, "duroxide.port")
  }
}

/** Below the system's temporary folder: for data of root in a folder that the server's user cannot enter. */
export const substituteName = (directory: string): string =>
  `duroxide-prisma-${createHash("sha256").update(directory).digest("hex").slice(0, 12)}`

export const urlOf = (port: number, password: string): Redacted.Redacted<string> =>
  Redacted.make(`postgresql://postgres:${password}@127.0.0.1:${port}/postgres`)

export const descriptionOf = (port: number, directory: string): string =>
  `embedded PostgreSQL on 127.0.0.1:${port}, data in ${directory}`

/**
 * `Running` with the port; `Starting` before it has one; `Stopped` without a process; `Misled`, which is stopped as
 * well, if the id of its process is that of another program.
 */
export type State =
  | { readonly _tag: "Running"; readonly port: number }
  | { readonly _tag: "Starting" | "Stopped" | "Misled" }

export const pidFile = ({ data }: Files): string => path.join(data, "postmaster.pid")

/** By `postmaster.pid`: process, data folder, start time, port, one per line. */
export const readState = async (files: Files): Promise<State> => {
  const text = await fs.readFile(pidFile(files), "utf8").catch(() => undefined)
  if (text === undefined) return { _tag: "Stopped" }
  const [pid = 0, , , port = 0] = text.split("\n").map(Number)
  const found = pid > 0 ? await whatIs(pid) : "postgres" // not yet written
  if (found === "nothing") return { _tag: "Stopped" }
  if (found === "another program") return { _tag: "Misled" }
  return port > 0 ? { _tag: "Running", port } : { _tag: "Starting" }
}

/** An embedded server that a folder has, running or not. */
export type Found =
  | { readonly _tag: "Running"; readonly url: Redacted.Redacted<string>; readonly description: string }
  | { readonly _tag: "Starting" | "Stopped"; readonly directory: string }

/** The embedded server of `DatabaseServer.make` in a folder; undefined if none was made there. Starts nothing. */
export const find = (folder: string): Effect.Effect<Found | undefined> =>
  Effect.promise(async () => {
    const wanted = path.resolve(folder, defaultDirectory)
    for (const directory of [wanted, ...await substituteOf(wanted)]) {
      const files = filesIn(directory)
      const password = await fs.readFile(files.passwordFile, "utf8").catch(() => undefined)
      if (password === undefined) continue
      const state = await readState(files)
      return state._tag === "Running"
        ? {
          _tag: state._tag,
          url: urlOf(state.port, password.trim()),
          description: descriptionOf(state.port, directory)
        }
        : { _tag: state._tag === "Misled" ? "Stopped" : state._tag, directory }
    }
    return undefined
  })

// internal

/** Other users can write to the temporary folder as well, so it must be our own. */
const substituteOf = async (wanted: string): Promise<ReadonlyArray<string>> => {
  const uid = process.getuid?.()
  if (uid !== 0) return []
  const substitute = path.join(os.tmpdir(), substituteName(wanted))
  const owner = await fs.lstat(substitute).then((found) => found.uid, () => undefined)
  return owner === uid ? [substitute] : []
}

const whatIs = async (pid: number): Promise<"nothing" | "postgres" | "another program"> => {
  try {
    process.kill(pid, 0)
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== "EPERM") return "nothing"
  }
  if (process.platform === "win32") return "postgres"
  const name = process.platform === "linux"
    ? fs.readFile(`/proc/${pid}/comm`, "utf8")
    : promisify(execFile)("ps", ["-o", "comm=", "-p", String(pid)]).then(({ stdout }) => stdout)
  const command = path.basename((await name.catch(() => "postgres")).trim())
  return command.startsWith("postgres") ? "postgres" : "another program"
}
