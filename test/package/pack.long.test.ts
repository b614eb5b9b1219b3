/**
 * The packed package in an empty project, as a user installs it.
 */
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { execFile, spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { readdir, readFile, rm, stat } from "node:fs/promises"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import * as Docs from "../utils/docs.ts"
import * as Packed from "../utils/packed.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitForStatement } from "../utils/waitUntil.ts"

let project: Packed.Project
let shipped: Packed.Contents["files"]

/** What programs import, and its place in the package. */
const entryPoints = new Map(
  Object.entries<{ readonly types: string }>(JSON.parse(Docs.read("package.json")).exports)
    .filter(([path]) => path !== "./package.json")
    .map(([path, files]) => [path.replace(/^\./, "duroxide-prisma"), files])
)

beforeAll(async () => {
  const { files, folder, tarball } = await Packed.pack()
  shipped = files
  project = await Packed.project(tarball)
  await project.install(...await Packed.pinned("effect", "typescript", "@types/node"))
  await rm(folder, { recursive: true })
})

afterAll(() => project.remove())

/** Path that npx would find, without the time that npm takes to start. */
const bin = (name = "duroxide-prisma") => join(project.folder, "node_modules/.bin", name)

const options = ["--strict", "--target", "es2022", "--module", "nodenext", "--types", "node"]

const compile = (file: string) => project.run(bin("tsc"), [...options, file])

// They wait for other processes most of the time.
describe.concurrent("package", () => {
  it.live("README: the first example compiles and prints what it says, as written", () =>
    Effect.gen(function*() {
      const [, example, prints] = /```ts\n(.*?)\n```(?:\s*<!-- prints:(.*?)-->)?/s.exec(Docs.read("README.md")) ?? []
      assert(example !== undefined, "README.md has no ts block")
      assert(prints !== undefined, "the first ts block of README.md is not followed by <!-- prints: … -->")

      const { url } = yield* PgServer.emptyDatabase
      const output = yield* Effect.promise(async () => {
        await project.write("example.ts", example)
        await compile("example.ts")
        return project.run(process.execPath, ["example.js"], { DATABASE_URL: url })
      })
      assert.deepStrictEqual(Packed.printed(output), Packed.printed(prints))
    }))

  it.live(
    "command line: npx duroxide-prisma migrates a database and lists what is in it",
    () =>
      Effect.gen(function*() {
        const { url } = yield* PgServer.emptyDatabase
        const run = (file: string, ...args: ReadonlyArray<string>) =>
          Effect.promise(() => project.run(file, args, { DATABASE_URL: url }))
        assert.include(yield* run("npx", "duroxide-prisma", "--help"), "duroxide-prisma <subcommand> [flags]")
        assert.match(yield* run(bin(), "migrate"), /^applied [\s\S]*\nup to date: /)
        assert.deepStrictEqual(JSON.parse(yield* run(bin(), "list", "--json")), { instances: [], next: null })
        if (process.platform === "linux") {
          const { status, stderr } = spawnSync("sh", ["-c", `"${bin()}" --version > /dev/full`])
          assert.strictEqual(status, 74)
          assert.match(stderr.toString(), /^error: standard output cannot be written.*\n$/)
        }
        // The package that reads SQLite files is optional, and not installed here.
        const refused = spawnSync(bin(), ["import", "sqlite", "store.db"], {
          env: { ...process.env, DATABASE_URL: url }
        })
        assert.strictEqual(refused.status, 2)
        assert.match(refused.stderr.toString(), /run npm install libsql@\d/)
        // So are those that obtain tokens.
        for (const [credentials, name] of [["entra", "@azure/identity"], ["rds", "@aws-sdk/rds-signer"]] as const) {
          const { stderr } = spawnSync(bin(), ["status"], {
            env: { ...process.env, DATABASE_URL: url, DUROXIDE_PG_CREDENTIALS: credentials }
          })
          assert.include(stderr.toString(), `the package ${name} is not installed: npm install ${name}`)
        }
      })
  )

  it.live("command line: ui serves the page and its interface until Ctrl-C, and the link has the token", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const program = yield* Effect.acquireRelease(
        Effect.sync(() =>
          spawn(bin(), ["ui", "--port", "0", "--json"], { env: { ...process.env, DATABASE_URL: url } })
        ),
        (program) => Effect.sync(() => program.kill("SIGKILL"))
      )
      const exited = new Promise((resolve) => program.on("exit", (...how) => resolve(how)))
      yield* Effect.promise(async () => {
        const [answer] = await once(program.stdout, "data") as [Buffer]
        const [base = "", token = ""] = (JSON.parse(String(answer)) as { readonly url: string }).url.split("#token=")
        const html = await (await fetch(base)).text()
        const [, script] = /src="\.\/(assets\/[^"]+)"/.exec(html) ?? []
        assert.strictEqual((await fetch(`${base}${script!}`)).status, 200)
        assert.strictEqual((await fetch(`${base}api/overview`)).status, 401)
        const headers = { authorization: `Bearer ${token}` }
        assert.deepInclude(await (await fetch(`${base}api/session`, { headers })).json(), { role: "operate" })
        // An open stream does not keep it from closing.
        const stream = await fetch(`${base}api/live`, { headers })
        assert.strictEqual(stream.status, 200)
        program.kill("SIGINT")
      })
      assert.deepStrictEqual(yield* Effect.promise(() => exited), [130, null])
    }))

  it.live("command line: Ctrl-C ends a command that waits, with exit code 130", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      const other = yield* PgServer.connect(test.url)
      yield* Effect.promise(() => other.query("SELECT pg_advisory_lock(72707369)")) // that of every migration
      const program = yield* Effect.acquireRelease(
        Effect.sync(() => spawn(bin(), ["migrate"], { env: { ...process.env, DATABASE_URL: test.url } })),
        (program) => Effect.sync(() => program.kill("SIGKILL"))
      )
      const exited = new Promise((resolve) => program.on("exit", (...how) => resolve(how)))
      yield* waitForStatement(test, "pg_advisory_lock")
      program.kill("SIGINT")
      assert.deepStrictEqual(yield* Effect.promise(() => exited), [130, null])
    }))

  it("command line: a reader that closes the pipe ends it without an error", async () => {
    const script = `{ "$0" --completions zsh; echo "exit code $?" >&2; } | true`
    const { stderr } = await promisify(execFile)("/bin/sh", ["-c", script, bin()])
    assert.strictEqual(stderr, "exit code 0\n")
  })

  it("testing: its first example runs under node --test, in a project without vitest", async () => {
    assert.notInclude(await readdir(join(project.folder, "node_modules")), "vitest")
    const [example] = Docs.blocks(Docs.read("docs/testing.md"), "js")
    assert(example !== undefined)
    await project.write("welcome.test.mjs", example.code)
    const output = await project.run(process.execPath, ["--test", "--test-reporter=tap", "welcome.test.mjs"])
    assert.include(output, "# pass 1")
    await project.write(
      "testing.ts",
      `import * as Testing from "duroxide-prisma/testing"\nconsole.log(Object.keys(Testing).sort().join())\n`
    )
    await compile("testing.ts")
    assert.deepStrictEqual(Packed.printed(await project.run(process.execPath, ["testing.js"])), [
      "HistoryMismatch,TestRuntime,UnreadableHistory,recordHistory,replayHistory"
    ])
  })

  it("links: of README, docs and CHANGELOG lead to files of the package, or of the repository", async () => {
    const folder = join(project.folder, "node_modules/duroxide-prisma")
    const pages = (await readdir(folder, { recursive: true })).filter((path) => path.endsWith(".md"))
    assert.includeMembers(pages, ["README.md", "CHANGELOG.md", "docs/testing.md"])
    const broken: Array<string> = []
    let count = 0
    for (const page of pages) {
      for (const link of Docs.links(await readFile(join(folder, page), "utf8"))) {
        const inRepository = link.startsWith(Docs.repository)
        if (/^https?:/.test(link) && !inRepository) continue
        count++
        const [path = "", anchor] = link.replace(Docs.repository, "").replace(/\?raw=true$/, "").split("#")
        const target = inRepository
          ? join(Packed.root, path)
          : path === ""
          ? join(folder, page)
          : join(folder, dirname(page), path)
        const isThere = await stat(target).then(() => true, () => false)
        const text = anchor === undefined || !isThere ? "" : await readFile(target, "utf8")
        if (!isThere || (anchor !== undefined && !Docs.anchors(text).includes(anchor))) broken.push(`${page}: ${link}`)
      }
    }
    assert.isAbove(count, 50)
    // Files that are not in the package, such as tests, are linked in the repository: Docs.repository + path.
    assert.deepStrictEqual(broken, [])
  })

  it("files: migrations are shipped twice, as SQL for the Prisma CLI and as code for bundles", async () => {
    const folder = join(project.folder, "node_modules/duroxide-prisma")
    assert.deepStrictEqual((await readdir(join(folder, "prisma"))).sort(), [
      "migrations",
      "partitions",
      "roles",
      "schema.prisma"
    ])
    const [name] = await readdir(join(folder, "prisma/migrations"))
    const scripts = shipped.map(({ path }) => path).filter((path) => path.endsWith(".js"))
    const texts = await Promise.all(scripts.map((path) => readFile(join(folder, path), "utf8")))
    assert.lengthOf(texts.filter((text) => text.includes(name!)), 1)
  })

  it.live("files: the package finds the SQL that it ships", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.emptyDatabase
      const output = yield* Effect.promise(async () => {
        await project.write(
          "partitions.js",
          `import { Migrator, Partitions } from "duroxide-prisma/prisma"
           import { Effect } from "effect"
           const url = process.env.DATABASE_URL
           await Effect.runPromise(Migrator.migrate({ url }))
           console.log(await Effect.runPromise(Partitions.apply({ url })))`
        )
        return project.run(process.execPath, ["partitions.js"], { DATABASE_URL: url })
      })
      assert.deepStrictEqual(Packed.printed(output), ["true"])
    }))

  it("size: files take less than 8 MiB, of them the page of the dashboard 0.5, and have no sources or maps", () => {
    const sizes = new Map<string, number>()
    for (const { path, size } of shipped) {
      const [, folder = "", kind = ""] = /^(?:(.+?)\/)?.*?(\.d\.ts|\.\w+)?$/.exec(path) ?? []
      const name = `${folder}/${path.includes("/generated/") ? "prisma/generated/" : ""}*${kind}`
      sizes.set(name, (sizes.get(name) ?? 0) + size)
    }
    const total = shipped.reduce((sum, { size }) => sum + size, 0)
    const bySize = [...sizes].sort(([, one], [, other]) => other - one)
    assert.isBelow(total, 8 * 2 ** 20, bySize.map(([name, size]) => `\n${size} ${name}`).join(""))
    const ofPage = shipped.filter(({ path }) => path.startsWith("ui/dist/"))
    assert.isAtLeast(ofPage.length, 3)
    assert.isBelow(ofPage.reduce((sum, { size }) => sum + size, 0), 0.5 * 2 ** 20)
    assert.deepStrictEqual(shipped.flatMap(({ path }) => /^src\/|\.map$|\.tsbuildinfo$/.test(path) ? [path] : []), [])
  })

  it("chunks: an import loads less than a sixth of the files that it loads from what tsc writes", async () => {
    const loaded = async (file: string, files = new Set<string>()) => {
      if (files.has(file)) return files
      files.add(file)
      for (const [, name] of (await readFile(file, "utf8")).matchAll(/(?:^import|from) "(\.[^"]+)";$/gm)) {
        await loaded(join(dirname(file), name!), files)
      }
      return files
    }
    for (const file of ["dist/index.js", "dist/prisma/index.js"]) {
      const chunks = await loaded(join(project.folder, "node_modules/duroxide-prisma", file))
      const modules = await loaded(join(Packed.root, file))
      assert.isAbove(chunks.size, 3, file)
      assert.isBelow(chunks.size / modules.size, 1 / 6, file)
    }
  })

  it("package.json: names the repository of the project", async () => {
    const { bugs, homepage, repository } = JSON.parse(Docs.read("package.json"))
    const place = repository.url.replace(/^git\+|\.git$/g, "")
    assert.deepStrictEqual([homepage, bugs.url], [`${place}#readme`, `${place}/issues`])
  })

  for (
    const [moduleResolution, module] of [["nodenext", "nodenext"], ["bundler", "preserve"]] as const
  ) {
    it(`types: tsc with moduleResolution ${moduleResolution} finds those of every entry point`, async () => {
      const compileAll = async (folder: string, paths: ReadonlyArray<string>, skipLibCheck: boolean) => {
        const compilerOptions = { strict: true, target: "es2022", module, moduleResolution, skipLibCheck, noEmit: true }
        await project.write(`${folder}/tsconfig.json`, JSON.stringify({ compilerOptions, files: ["all.ts"] }))
        const lines = paths.map((path, i) => `import * as entry${i} from "${path}"\nvoid entry${i}\n`)
        await project.write(`${folder}/all.ts`, lines.join(""))
        const files = await project.run(bin("tsc"), ["-p", folder, "--listFiles"])
        for (const path of paths) assert.include(files, entryPoints.get(path)!.types.slice(1))
      }
      await compileAll(`types-${moduleResolution}/found`, [...entryPoints.keys()], true)
      // Modules that need a test runner or the SDK of AWS cannot be checked in a project without it.
      const optional = ["duroxide-prisma/testing/provider", "duroxide-prisma/queue/sqs"]
      const plain = [...entryPoints.keys()].filter((path) => !optional.includes(path))
      await compileAll(`types-${moduleResolution}/checked`, plain, false)
    })
  }

  it("docs/http.md, docs/recipes.md: their examples compile with the library DOM", async () => {
    // It has types of its own for `Request` and `Response`. Without it, the repository compiles the same examples.
    const files = await Promise.all(
      [["http", "In an HTTP server"], ["recipes", "Triggers"]].map(async ([page, heading]) => {
        const blocks = Docs.section(`docs/${page}.md`, heading!).matchAll(/^```ts\n(.*?)^```$/gms)
        const file = `endpoints/${page}.ts`
        await project.write(file, [...blocks].map(([, code]) => code!).join("\n"))
        return file
      })
    )
    const settings = [...options, "--noEmit", "--skipLibCheck", "--lib", "es2022,dom"]
    assert.strictEqual(await project.run(bin("tsc"), [...settings, ...files]), "")
  })

  it("exports: keep what is internal out of reach", async () => {
    const open = [...entryPoints.keys(), "duroxide-prisma/package.json"]
    const closed = ["model/shared/wire", "runtime/slots", "dist/runtime/slots.js"].map((path) =>
      `duroxide-prisma/${path}`
    )
    await project.write(
      "reach.js",
      `const reach = (path) => {
         try { return import.meta.resolve(path) && "found" } catch (error) { return error.code }
       }
       console.log(JSON.stringify(${JSON.stringify([...open, ...closed])}.map(reach)))`
    )
    assert.deepStrictEqual(JSON.parse(await project.run(process.execPath, ["reach.js"])), [
      ...open.map(() => "found"),
      ...closed.map(() => "ERR_PACKAGE_PATH_NOT_EXPORTED")
    ])
  })

  it("exports: the main entry point has only what applications need", async () => {
    const dist = join(project.folder, "node_modules/duroxide-prisma/dist")
    const modules = [
      ...(await readFile(join(dist, "index.d.ts"), "utf8")).matchAll(/export \* as \w+ from "\.\/(.+)\.ts"/g)
    ]
    assert.lengthOf(modules, 12)
    // Metrics are names for exporters, and as many as there are things to look at.
    const names = await Promise.all(
      modules.filter(([, path]) => path !== "model/Metrics").map(async ([, path]) => {
        const text = (await readFile(join(dist, `${path}.d.ts`), "utf8")).replace(/\/\*[\s\S]*?\*\//g, "")
        const declared = [...text.matchAll(/^export (?:declare )?(?:const|class|interface|type) (\w+)/gm)]
        const passedOn = [...text.matchAll(/^export (?:type )?\{([^}]*)\}/gm)].flatMap(([, list]) => list!.split(","))
        const last = passedOn.map((name) => name.trim().split(" as ").at(-1)!)
        return new Set([...declared.map(([, name]) => name!), ...last].filter((name) => name !== ""))
      })
    )
    assert.isAtLeast(names.reduce((sum, { size }) => sum + size, 0), 45) // they were found
    assert.isAtMost(names.reduce((sum, { size }) => sum + size, 0), 105)
  })

  it("declarations: name no module by the package's private imports", async () => {
    const dist = join(project.folder, "node_modules/duroxide-prisma/dist")
    const declarations = (await readdir(dist, { recursive: true })).filter((path) => path.endsWith(".d.ts"))
    assert.isNotEmpty(declarations)
    for (const path of declarations) {
      assert.notMatch(await readFile(join(dist, path), "utf8"), /(from |import\()"#/, path)
    }
  })
})
