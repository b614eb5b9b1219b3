/**
 * Applications with a Prisma client and a `pg` of their own: with both ends of the ranges of package.json the packed
 * package uses these, instead of bringing copies; with a `pg` outside of its range, it uses a copy.
 *
 * Why the ranges begin where they do: `@prisma/client` 7.3.0 is the first that has the query compiler that our client
 * loads; `@prisma/adapter-pg` 7.6.0 the first that prepares statements by name. `pg` before 8.23.1 checks the
 * certificate of a server whose URL has an IP address against `localhost`; before 8.21.0 it cannot say whether a
 * connection is inside a transaction, which the pool asks. Tests of the pool and of `Credentials` fail with them.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { inject } from "vitest"
import * as Docs from "../utils/docs.ts"
import * as Packed from "../utils/packed.ts"
import * as PgServer from "../utils/PgServer.ts"

const program = `
  import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
  import { Database, PrismaProvider, Transaction } from "duroxide-prisma/prisma"
  import { Effect, Layer, Schema } from "effect"
  import { Pool } from "pg"

  const Greet = Activity.make("Greet", { payload: Schema.String, success: Schema.String })
  const GreetLive = Greet.toLayer((name) => Effect.succeed(\`Hello, \${name}!\`))
  const Welcome = Orchestration.make("Welcome", { payload: Schema.String, success: Schema.String })
  const WelcomeLive = Welcome.toLayer((name) => Greet.execute(name))
  const RuntimeLive = Runtime.layer({ orchestrations: [Welcome], activities: [Greet] }).pipe(
    Layer.provide([WelcomeLive, GreetLive])
  )
  const url = process.env.DATABASE_URL!
  const App = Layer.mergeAll(RuntimeLive, Client.layer).pipe(Layer.provide(PrismaProvider.layer({ url })))

  const runs = Effect.gen(function*() {
    const client = yield* Client.Client
    console.log(yield* client.execute(Welcome, { instanceId: "first", payload: "world" }))
    const taken = yield* Effect.flip(client.start(Welcome, { instanceId: "first", payload: "world" }))
    console.log(taken._tag)
  }).pipe(Effect.provide(App))

  const queries = Effect.gen(function*() {
    const { client, query, schema, schemaSql } = yield* Database.Database
    yield* Effect.promise(() =>
      client.$transaction((tx) =>
        Effect.runPromise(
          Client.within(Transaction.make(tx, { schema })).start(Welcome, { instanceId: "second", payload: "again" })
        )
      )
    )
    const found = yield* Effect.promise(() => client.execution.findMany({ orderBy: { instanceId: "asc" } }))
    console.log(found.map(({ instanceId, status }) => instanceId + " " + status).join(", "))
    console.log(yield* Effect.promise(() => client.orchestratorQueueItem.count()))
    const refused = yield* Effect.flip(query("read", schemaSql)) // no statement
    console.log("sqlState" in refused.reason && refused.reason.sqlState)
  }).pipe(Effect.provide(Database.layer({ url })))

  const pool = new Pool({ connectionString: url })
  const shares = Effect.gen(function*() {
    const client = yield* Client.Client
    console.log(yield* client.execute(Welcome, { instanceId: "third", payload: "pool" }))
  }).pipe(Effect.provide(Layer.mergeAll(RuntimeLive, Client.layer).pipe(Layer.provide(PrismaProvider.layer({ pool })))))

  await Effect.runPromise(Effect.andThen(runs, Effect.andThen(queries, shares)))
  await pool.end()
`

const { dependencies } = JSON.parse(Docs.read("package.json")) as {
  readonly dependencies: Readonly<Record<string, string>>
}
const theirs = ["@prisma/client", "@prisma/adapter-pg", "pg"] as const
const lowest = theirs.map((name) => `${name}@${dependencies[name]!.replace("^", "")}`)
const newest = theirs.map((name) => `${name}@${dependencies[name]}`)

const application = (...wanted: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const made = await Packed.project(inject("tarball"))
      await made.run("npm", ["install", ...Packed.quietly, "--save-exact", ...wanted])
      await made.install(...await Packed.pinned("effect", "typescript", "@types/node"))
      return made
    }),
    (made) => Effect.promise(() => made.remove())
  )

/** The versions of a package that are installed, one for each copy. */
const copies = async (made: Packed.Project, name: string) =>
  (JSON.parse(await made.run("npm", ["query", `[name="${name}"]`])) as ReadonlyArray<{ readonly version: string }>)
    .map(({ version }) => version)

/** Compiles and runs the program. */
const runs = (made: Packed.Project) =>
  Effect.gen(function*() {
    const { url } = yield* PgServer.emptyDatabase
    const output = yield* Effect.promise(async () => {
      await made.write("program.ts", program)
      const options = ["--strict", "--target", "es2022", "--module", "nodenext", "--types", "node"]
      await made.run("npx", ["tsc", ...options, "program.ts"])
      return made.run(process.execPath, ["program.js"], { DATABASE_URL: url })
    })
    assert.deepStrictEqual(Packed.printed(output), [
      "Hello, world!",
      "InstanceAlreadyExists",
      "first Completed, second Running",
      "1",
      "42601",
      "Hello, pool!"
    ])
  })

describe.concurrent("versions", () => {
  for (const [end, wanted] of [["lowest", lowest], ["newest", newest]] as const) {
    it.live(`an application with the ${end} ones of the ranges has one copy of each, which works`, () =>
      Effect.gen(function*() {
        const made = yield* application(...wanted)
        for (const name of theirs) {
          const found = yield* Effect.promise(() => copies(made, name))
          assert.lengthOf(found, 1, name)
          if (end === "lowest") assert.include(wanted, `${name}@${found[0]}`)
        }
        yield* runs(made)
      }))
  }

  it.live("an application with an older pg keeps it, and has one copy of the Prisma client", () =>
    Effect.gen(function*() {
      const made = yield* application("pg@8.16.3")
      assert.lengthOf(yield* Effect.promise(() => copies(made, "@prisma/client")), 1)
      assert.include(yield* Effect.promise(() => copies(made, "pg")), "8.16.3")
      yield* runs(made)
    }))
})
