/**
 * An application whose own Prisma schema has models of our tables, as docs/tables.md shows it: its migrations leave our
 * tables alone, and its queries join them.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { inject } from "vitest"
import * as Docs from "../utils/docs.ts"
import * as Packed from "../utils/packed.ts"
import * as PgServer from "../utils/PgServer.ts"

const page = Docs.read("docs/tables.md")
const [config, query] = Docs.blocks(page, "ts").slice(-2).map(({ code }) => code)
const [schema] = Docs.blocks(page, "prisma").map(({ code }) => code)

const program = `
  import { PrismaPg } from "@prisma/adapter-pg"
  import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
  import { PrismaProvider } from "duroxide-prisma/prisma"
  import { Effect, Layer, Schema } from "effect"
  import { PrismaClient } from "./generated/client.js"

  const url = process.env.DATABASE_URL!
  const Order = Orchestration.make("Order", { payload: Schema.String, error: Schema.String })
  const OrderLive = Order.toLayer((id) => id.startsWith("bad") ? Effect.fail("declined") : Effect.void)
  const App = Runtime.layer({ orchestrations: [Order], activities: [] }).pipe(
    Layer.provide(OrderLive),
    Layer.provideMerge(Client.layer),
    Layer.provide(PrismaProvider.layer({ url, schema: "duroxide" }))
  )
  const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) })
  const orders = ["bad-1", "bad-2", "good"].map((id) => ({ id, customer: id === "bad-2" ? "Grace" : "Ada" }))
  await prisma.order.createMany({ data: [...orders, { id: "new", customer: "Ada" }] })
  await Effect.runPromise(
    Effect.gen(function*() {
      const client = yield* Client.Client
      for (const { id } of orders) yield* Effect.exit(client.execute(Order, { instanceId: id, payload: id }))
    }).pipe(Effect.provide(App))
  )
  ${query}
  console.log(failed.map(({ id, instance }) => id + " " + instance?.status).join(", "))
  console.log((await prisma.order.findMany({ where: { instance: null } })).map(({ id }) => id).join(", "))
  await prisma.$disconnect()
`

it.live("an application joins instances with tables of its own, and its migrations leave ours alone", () =>
  Effect.gen(function*() {
    const { url } = yield* PgServer.emptyDatabase
    const made = yield* Effect.acquireRelease(
      Effect.promise(() => Packed.project(inject("tarball"))),
      (made) => Effect.promise(() => made.remove())
    )
    yield* Effect.promise(async () => {
      await made.install(
        ...await Packed.pinned("effect", "typescript", "@types/node", "prisma")
      )
      await made.write("prisma.config.ts", config!)
      await made.write("prisma/schema.prisma", schema!)
      await made.write("program.ts", program)
      const env = {
        DATABASE_URL: url,
        PRISMA_SCHEMA_ENGINE_BINARY: join(Packed.root, "scripts/prisma/schema-engine.mjs")
      }
      await made.run("npx", ["duroxide-prisma", "migrate", "--schema", "duroxide"], env)
      await made.run("npx", ["prisma", "migrate", "dev", "--name", "orders"], env)
      const again = await made.run("npx", ["prisma", "migrate", "dev", "--name", "nothing"], env)
      assert.include(again, "Already in sync")
      const [first, ...others] = (await readdir(join(made.folder, "prisma/migrations"))).filter((name) =>
        name !== "migration_lock.toml"
      )
      assert.deepStrictEqual(others, [])
      const sql = await readFile(join(made.folder, "prisma/migrations", first!, "migration.sql"), "utf8")
      assert.deepStrictEqual(sql.match(/^(CREATE|ALTER|DROP)\b.*$/gm), [`CREATE TABLE "orders" (`])
      await made.run("npx", ["prisma", "generate"], env)
      const options = [
        "--strict",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--types",
        "node",
        "--skipLibCheck",
        "--rewriteRelativeImportExtensions"
      ]
      await made.run("npx", ["tsc", ...options, "program.ts"])
      const output = await made.run(process.execPath, ["program.js"], env)
      assert.deepStrictEqual(Packed.printed(output), ["bad-1 Failed", "new"])
    })
  }))
