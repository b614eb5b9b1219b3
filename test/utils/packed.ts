/**
 * Projects of users: outside the repository, with the packed package, and dependencies from npm's registry.
 *
 * It is packed from `dist`, which `npm test` brings up to date before it starts vitest, and bundled as `prepack` does.
 */
import { execFile } from "node:child_process"
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"

export const root = fileURLToPath(new URL("../../", import.meta.url))

export interface Project {
  readonly folder: string
  /** Runs a command in the project; returns its output, or fails with it. */
  readonly run: (
    file: string,
    args: ReadonlyArray<string>,
    env?: Readonly<Record<string, string | undefined>>
  ) => Promise<string>
  /** Installs packages and the packed one. */
  readonly install: (...wanted: ReadonlyArray<string>) => Promise<string>
  readonly write: (path: string, text: string) => Promise<void>
  readonly remove: () => Promise<void>
}

export interface Contents {
  /** The files in the package, each with its bytes. */
  readonly files: ReadonlyArray<{ readonly path: string; readonly size: number }>
}

/** The packed package, in a folder of its own. */
export const pack = async (): Promise<Contents & { readonly folder: string; readonly tarball: string }> => {
  const folder = await mkdtemp(join(tmpdir(), "duroxide-prisma-pack-"))
  // No scripts: `prepack` would rebuild `dist` under the tests that are running programs from it.
  const options = ["--json", "--ignore-scripts", "--pack-destination", folder]
  const pack = async (source: string) =>
    JSON.parse(await run(folder)("npm", ["pack", ...options, source]))[0] as Contents & { readonly filename: string }
  const { filename } = await pack(root)
  await run(folder)("tar", ["-xzf", filename])
  await run(root)(process.execPath, ["scripts/bundle.mjs", join(folder, "package")])
  const { files } = await pack(join(folder, "package"))
  return { folder, tarball: join(folder, filename), files }
}

/** An empty project. */
export const project = async (tarball: string): Promise<Project> => {
  const folder = await mkdtemp(join(tmpdir(), "duroxide-prisma-project-"))
  await writeFile(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }))
  return {
    folder,
    run: run(folder),
    install: (...wanted) => run(folder)("npm", ["install", ...quietly, tarball, ...wanted]),
    write: async (path, text) => {
      await mkdir(dirname(join(folder, path)), { recursive: true })
      await writeFile(join(folder, path), text)
    },
    remove: () => rm(folder, { recursive: true, force: true })
  }
}

/** Prefers the cache over the registry. */
export const quietly = ["--prefer-offline", "--no-audit", "--no-fund"]

/** `name@version`, with the version of the repository. */
export const pinned = async (...names: ReadonlyArray<string>): Promise<ReadonlyArray<string>> => {
  const { devDependencies } = JSON.parse(await readFile(join(root, "package.json"), "utf8"))
  return names.map((name) => `${name}@${devDependencies[name]}`)
}

/** What a program printed, without Effect's log, which goes to standard output as well. */
export const printed = (text: string): ReadonlyArray<string> =>
  text.replaceAll(logged, "").split("\n").map((line) => line.trim()).filter((line) => line !== "")

// internal

/** A line of the log, with the annotations below it. */
const logged = /^\[\d\d:\d\d:\d\d\.\d\d\d\] [A-Z]+ \(#\d+\): (?:.*\{\n(?: .*\n)*\}|.*)$/gm

const run = (folder: string): Project["run"] => (file, args, env = {}) =>
  // If npm started the tests, its environment has the settings of this repository.
  promisify(execFile)(file, args, {
    cwd: folder,
    env: { ...outsideEnvironment(), ...env },
    maxBuffer: 64 * 1024 * 1024
  }).then(
    ({ stdout }) => stdout,
    (error) => Promise.reject(new Error(`${error.message}\n${error.stdout}`))
  )

const outsideEnvironment = () =>
  Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^(npm_|NODE_ENV$|NODE_OPTIONS$|VITEST)/.test(name))
  )
