/**
 * The other side: duroxide in Rust, on a schema it made itself.
 */
import * as Effect from "effect/Effect"
import { createRequire } from "node:module"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

export interface Status {
  readonly status: "NotFound" | "Running" | "Completed" | "Failed"
  readonly output?: string
  readonly error?: string
  readonly customStatus?: string
}

export interface Event {
  readonly eventId: number
  readonly kind: string
  readonly sourceEventId?: number
  readonly data?: string
}

/** duroxide's client; inputs, outputs and data are JSON texts. */
export interface Client {
  startOrchestration(instanceId: string, name: string, input: string): Promise<void>
  getStatus(instanceId: string): Promise<Status>
  waitForOrchestration(instanceId: string, timeoutMs: number): Promise<Status>
  raiseEvent(instanceId: string, name: string, data: string): Promise<void>
  enqueueEvent(instanceId: string, queue: string, data: string): Promise<void>
  cancelInstance(instanceId: string, reason: string): Promise<void>
  getKvAllValues(instanceId: string): Promise<Record<string, string>>
  readExecutionHistory(instanceId: string, executionId: number): Promise<ReadonlyArray<Event>>
  deleteInstance(instanceId: string, force: boolean): Promise<unknown>
}

interface Native {
  readonly JsPostgresProvider: { connectWithSchema(url: string, schema: string): Promise<unknown> }
  readonly JsSqliteProvider: { open(url: string): Promise<unknown> }
  readonly JsClient: { new(provider: unknown): Client; fromPostgres(provider: unknown): Client }
}

/** What `test/programs/rust.ts` reads. */
export interface Options {
  readonly activities?: ReadonlyArray<string>
  readonly orchestrations?: ReadonlyArray<string>
  readonly tag?: string
  readonly hang?: boolean
  readonly settings?: Readonly<Record<string, unknown>>
}

const given = process.env.DUROXIDE_BINARY
if (given === undefined) throw new Error("DUROXIDE_BINARY is not set: run these tests with `npm run test:rust`")
/** Path of duroxide's Node binding. */
export const binary: string = given
const native = createRequire(import.meta.url)(binary) as Native

/** A client of the file that `url` names, which is made where it is missing. */
export const openSqlite = (url: string): Effect.Effect<Client> =>
  Effect.promise(async () => new native.JsClient(await native.JsSqliteProvider.open(url)))

/** Name of every schema here. */
export const schema = "rust"

/** A database with a schema that duroxide-pg has made. */
export const open = Effect.gen(function*() {
  const test = yield* PgServer.emptyDatabase
  yield* Effect.addFinalizer(() => test.sql(`DROP SCHEMA IF EXISTS ${schema} CASCADE`))
  const url = new URL(test.url)
  url.searchParams.delete("schema")
  const plain = url.toString()
  /** Connects as every start of a process does: migrates where necessary. */
  const connect = Effect.promise(async () =>
    native.JsClient.fromPostgres(await native.JsPostgresProvider.connectWithSchema(plain, schema))
  )
  const client = yield* connect
  yield* test.sql(`SET search_path = ${schema}`)
  /** A runtime in a process of its own, which serves when this returns. */
  const run = (options: Options = {}) =>
    Effect.tap(
      ChildProcess.start("rust", binary, plain, schema, JSON.stringify(options)),
      ({ printed }) => printed("ready")
    )
  return { url: plain, schema, sql: test.sql, client, connect, run }
})

export type Shared = Effect.Success<typeof open>

/** Calls that take part in a test: `(client) => client.getStatus("a")`. */
export const ask = <A>({ client }: Shared, call: (client: Client) => Promise<A>): Effect.Effect<A> =>
  Effect.promise(() => call(client))

/** Waits at most 20 seconds for the end of an instance. */
export const ended = (shared: Shared, instanceId: string) =>
  ask(shared, (client) => client.waitForOrchestration(instanceId, 20_000))

/** The activities a process has run, `<name> <instance> <input>` each. */
export const ran = (rust: ChildProcess.Process): ReadonlyArray<string> =>
  [...rust.output().matchAll(/^ran (.*)$/gm)].map(([, call]) => call!)

/** Waits until an errand of any side shows its custom status: then it waits for its answer. */
export const asking = (shared: Shared, instanceId: string) =>
  waitUntil(
    Effect.map(ask(shared, (client) => client.getStatus(instanceId)), ({ customStatus }) => customStatus === "asking")
  )
