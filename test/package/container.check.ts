/**
 * examples/deployment as an image would have it: the steps of its Dockerfile in folders instead of stages, on an
 * application that has the packed package among its dependencies; then its command.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { execFileSync } from "node:child_process"
import { cp, mkdtemp, readdir, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { inject } from "vitest"
import * as Command from "../utils/command.ts"
import * as DockerIgnore from "../utils/dockerIgnore.ts"
import * as Docs from "../utils/docs.ts"
import * as Packed from "../utils/packed.ts"
import * as PgServer from "../utils/PgServer.ts"

const steps = Docs.read("examples/deployment/Dockerfile")
  .replace(/^#.*\n/gm, "")
  .replace(/\\\n/g, " ")
  .trim()
  .split("\n")
  .filter((line) => line !== "")
  .map((line) => {
    const [, keyword, rest] = /^(\w+) +(.*)$/.exec(line)!
    return { keyword: keyword!, rest: rest! }
  })

/** A package that the image must not have; nothing else depends on it. */
const onlyForTests = "is-number@7.0.0"

/** An application: its source, and what npm makes of its dependencies. */
const application = async () => {
  const app = await Packed.project(inject("tarball"))
  const { devDependencies } = JSON.parse(Docs.read("package.json"))
  const only = (name: string) => `${name}@${devDependencies[name]}`
  await app.install(only("effect"))
  await app.run("npm", [
    "install",
    ...Packed.quietly,
    "--save-dev",
    only("typescript"),
    only("@types/node"),
    onlyForTests
  ])
  await app.run("npm", ["pkg", "set", "scripts.build=tsc"])
  await app.write("worker.ts", Docs.read("examples/deployment/worker.ts"))
  await app.write(
    "tsconfig.json",
    JSON.stringify({
      compilerOptions: {
        module: "nodenext",
        target: "es2024",
        strict: true,
        skipLibCheck: true,
        types: ["node"],
        outDir: "dist"
      },
      files: ["worker.ts"]
    })
  )
  return app
}

/** Runs the steps; returns the folder of the last stage, its environment and its command. */
const build = async (context: string, within: string) => {
  const isLeftOut = DockerIgnore.reader(Docs.read("examples/deployment/Dockerfile.dockerignore"))
  const stages = new Map<string, string>()
  const environment: Record<string, string> = {}
  let folder = ""
  let command: ReadonlyArray<string> = []
  for (const { keyword, rest } of steps) {
    if (keyword === "FROM") {
      folder = await mkdtemp(join(within, "stage-"))
      stages.set(/ AS (\w+)$/.exec(rest)?.[1] ?? "last", folder)
    } else if (keyword === "COPY" && rest.startsWith("--from=")) {
      const [, stage] = /^--from=(\w+) \/app \.\/$/.exec(rest)!
      await cp(stages.get(stage!)!, folder, { recursive: true, verbatimSymlinks: true })
    } else if (keyword === "COPY") {
      const names = rest === ". ." ? (await readdir(context)).filter((name) => !isLeftOut(name)) : rest.split(" ")
      for (const name of names) {
        if (name !== "./") await cp(join(context, name), join(folder, name), { recursive: true })
      }
    } else if (keyword === "RUN") {
      execFileSync("/bin/sh", ["-ec", rest], { cwd: folder, stdio: "pipe" })
    } else if (keyword === "ENV") {
      for (const [, name, value] of rest.matchAll(/(\w+)=(\S+)/g)) environment[name!] = value!
    } else if (keyword === "CMD") command = JSON.parse(rest)
    else assert.include(["WORKDIR", "USER", "EXPOSE", "HEALTHCHECK"], keyword)
  }
  return { folder, environment, command }
}

describe("examples/deployment", () => {
  it.live(
    "its Dockerfile's steps make an application that migrates, answers its health check and ends on SIGTERM",
    () =>
      Effect.gen(function*() {
        const app = yield* Effect.acquireRelease(
          Effect.promise(application),
          (app) => Effect.promise(() => app.remove())
        )
        const within = yield* Effect.acquireRelease(
          Effect.promise(() => mkdtemp(join(tmpdir(), "duroxide-prisma-image-"))),
          (folder) => Effect.promise(() => rm(folder, { recursive: true }))
        )
        yield* Effect.promise(() => writeFile(join(app.folder, ".env"), "SECRET=never in an image"))
        const { command, environment, folder } = yield* Effect.promise(() => build(app.folder, within))
        const left = yield* Effect.promise(() => readdir(folder))
        assert.notInclude(left, ".env")
        assert.notInclude(yield* Effect.promise(() => readdir(join(folder, "node_modules"))), "is-number")

        const { url } = yield* PgServer.emptyDatabase
        const port = yield* Command.freePort
        const env = { ...environment, DATABASE_URL: url, PORT: String(port) }
        const file = (words: ReadonlyArray<string>) => [words[0]!, join(folder, words[1]!), ...words.slice(2)]
        const migrate = yield* Command.start([
          "node",
          join(folder, "node_modules/duroxide-prisma/dist/cli/main.js"),
          "migrate"
        ], env)
        assert.strictEqual(yield* migrate.end, 0, migrate.output())
        const worker = yield* Command.start(file(command), env)
        const check = steps.find(({ keyword }) => keyword === "HEALTHCHECK")!.rest
        const [node, ...words] = JSON.parse(check.slice(check.indexOf("["))) as ReadonlyArray<string>
        const isHealthy = Effect.scoped(Effect.flatMap(
          Command.start([node!, ...words.map((word) => word.replace("8080", String(port)))]),
          ({ end }) => Effect.map(end, (code) => code === 0)
        ))
        assert.isTrue(yield* Effect.repeat(isHealthy, { until: (healthy) => healthy, times: 100 }), worker.output())
        worker.child.kill("SIGTERM")
        assert.strictEqual(yield* worker.end, 0, worker.output())
      }).pipe(Effect.scoped),
    600_000
  )
})
