/**
 * What the lists of the command line show in their last columns, and on which width.
 */
import { assert, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"

const error = "the bank is down: it answered 503 to the third of three calls"

/** An instance whose detail is long. */
const contents = `
  INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at, custom_status)
  VALUES ('trip', 'Trip', '1.0.0', now(), now(), '${error}')`

class Store extends Context.Service<Store, PgServer.TestDatabase>()("test/Lists") {}

const make = Effect.tap(PgServer.database, ({ sql }) => sql(contents))

const run = (args: string, options: Cli.Options = {}) =>
  Effect.flatMap(Store, ({ url }) => Cli.run(args, { ...options, env: { DATABASE_URL: url, NO_COLOR: "1" } }))

it.layer(Layer.effect(Store, make), { excludeTestServices: true })("lists", (it) => {
  it.effect("list cuts its details at the width of the terminal, and nowhere else", () =>
    Effect.gen(function*() {
      assert.include((yield* run("list")).stdout, `  ${error}\n`)
      assert.include((yield* run("list", { terminal: 160 })).stdout, `  ${error}\n`)
      const lines = (yield* run("list", { terminal: 100 })).stdout.trimEnd().split("\n")
      assert.lengthOf(lines, 2)
      assert.match(lines[1]!, / the bank is down: .*…$/)
      assert.lengthOf(lines[1]!, 100)
    }))
})
