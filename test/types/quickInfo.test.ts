import { assert, it } from "@effect/vitest"
import { quickInfo } from "../utils/quickInfo.ts"

it("client.start: its types read in one line, but for the fields of a payload", async () => {
  const program = `
    import { Client, Orchestration } from "duroxide-prisma"
    import { Schema } from "effect"
    class Order extends Schema.Class<Order>("Order")({ cents: Schema.Int }) {}
    const ByClass = Orchestration.make("ByClass", { payload: Order, success: Schema.String })
    const ByFields = Orchestration.make("ByFields", { payload: { cents: Schema.Int }, error: Schema.String })
    declare const client: Client.Client["Service"]
    const uncalled = client.start
    const byClass = client.start(ByClass, { instanceId: "1", payload: new Order({ cents: 1 }) })
    const byFields = client.start(ByFields, { instanceId: "1", payload: { cents: 1 } })
  `
  const [uncalled, byClass, byFields, started] = await quickInfo("test/types/quickInfo.program.ts", program, [
    "uncalled",
    "byClass = client.start",
    "byFields = client.start",
    "const byFields"
  ])
  const result = "Effect<void, Client.StartError"
  assert.strictEqual(
    uncalled,
    "const uncalled: <P extends PayloadSchema, Id extends Ids>(orchestration: Startable<P, Id>, " +
      `options: Client.StartOptions<P["Type"], Id>) => ${result}>`
  )
  assert.strictEqual(
    byClass,
    "(property) start: <typeof Order, undefined>(orchestration: Startable<typeof Order, undefined>, " +
      `options: Client.StartOptions<Order, undefined>) => ${result}>`
  )
  assert.strictEqual(
    byFields!.replace(/\{[^}]*\}/g, "Fields"),
    "(property) start: <Schema.Struct<Fields>, undefined>(orchestration: Startable<Schema.Struct<Fields>, undefined>, " +
      `options: Client.StartOptions<Fields, undefined>) => ${result}>`
  )
  assert.strictEqual(started, `const byFields: ${result}, never>`)
})
