/**
 * Sends messages at the moments at which instances begin to wait for them, and says whether one waited for long:
 *
 *     npm run wakeups [-- --messages 100000 --lanes 8]
 *     npm run wakeups -- --faults kills --seconds 20
 *     npm run wakeups -- --faults drops --seconds 20
 *
 * `test/programs/wakeups/run.ts` says what is sent, and what the faults are. Runs on `DATABASE_URL`, whose role may
 * create databases, else on an embedded PostgreSQL. The last line is one JSON object. Exit code 1: a wake-up was lost.
 */
import { Migrator } from "duroxide-prisma/prisma"
import { DatabaseServer } from "duroxide-prisma/server"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { parseArgs } from "node:util"
import * as pg from "pg"
import { run } from "../../test/programs/wakeups/run.ts"

const { values } = parseArgs({
  options: {
    messages: { type: "string" },
    /** 20 with faults, unless set. */
    seconds: { type: "string" },
    /** Instances, each with a database of its own. */
    lanes: { type: "string", default: "8" },
    faults: { type: "string" }
  }
})
const { faults } = values
const messages = Number(values.messages ?? (faults === undefined ? 100_000 : Infinity))
const seconds = Number(values.seconds ?? (faults === undefined ? Infinity : 20))
const lanes = Number(values.lanes)
const isFault = faults === undefined || faults === "kills" || faults === "drops"
if (!isFault || !(messages > 0) || !(seconds > 0) || !(lanes >= 1)) {
  console.error("usage: npm run wakeups [-- --messages 100000 --seconds 20 --lanes 8 --faults kills|drops]")
  process.exit(2)
}

const scope = Scope.makeUnsafe()
const server = await Effect.runPromise(
  Scope.provide(DatabaseServer.make({ directory: ".duroxide/wakeups", settings: { max_connections: "300" } }), scope)
)
console.log(server.description)
const admin = new pg.Client(Redacted.value(server.url))
await admin.connect()
const names = Array.from({ length: lanes }, (_, lane) => `wakeups_${process.pid}_${lane}`)
const urlOf = (name: string) => {
  const url = new URL(Redacted.value(server.url))
  url.pathname = `/${name}`
  return url.toString()
}
let isLost = true
try {
  for (const name of names) {
    await admin.query(`CREATE DATABASE ${name}`)
    await Effect.runPromise(Effect.provide(Migrator.migrate({ url: urlOf(name) }), Logger.layer([])))
  }
  const outcome = await run({
    urls: names.map(urlOf),
    program: new URL("../../test/programs/wakeups/process.js", import.meta.url),
    messages,
    seconds,
    ...(faults !== undefined && { faults })
  })
  for (const violation of outcome.violations) console.log(`VIOLATION: ${violation}`)
  console.log(JSON.stringify(outcome))
  isLost = outcome.violations.length > 0
} finally {
  for (const name of names) await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
  await admin.end()
  await Effect.runPromise(Scope.close(scope, Exit.void))
}
process.exit(isLost ? 1 : 0)
