/**
 * SQLite files of duroxide that hold instances in every state, made by its own runtime, and how processes take them
 * over.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { copyFileSync, existsSync } from "node:fs"
import { instancesOf } from "../programs/lives.ts"
import type { Instance, Message } from "../programs/lives.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Rust from "./Rust.ts"
import * as SqliteFile from "./SqliteFile.ts"

/** Rows of a SELECT, from either store. */
export type Query = <Row>(text: string) => Effect.Effect<ReadonlyArray<Row>>

/** A store of duroxide: where its processes connect, and what it holds. */
export interface Store {
  readonly url: string
  readonly schema: string
  readonly client: Rust.Client
  readonly query: Query
  /** SQL for now, in the unit of the columns `visible_at`; and for a time that no test waits for. */
  readonly now: string
  readonly future: string
}

/** A store in a file. */
export interface FileStore extends Store {
  readonly write: (text: string) => Effect.Effect<void>
}

/** A file, which is made where it is missing. */
export const sqlite = Effect.fnUntraced(function*(file: string): Effect.fn.Return<FileStore, never, Scope.Scope> {
  const url = `sqlite:${file}`
  const client = yield* Rust.openSqlite(url)
  const { select, write } = yield* SqliteFile.open(file)
  return {
    url,
    schema: "",
    client,
    query: select,
    write,
    now: "unixepoch('subsec') * 1000",
    future: "(unixepoch() + 3600) * 1000"
  }
})

/** A schema of PostgreSQL, as an observer sees it. */
export const observed = (query: Query) => ({ query, now: "now()", future: "now() + interval '1 hour'" })

/** A schema that duroxide-pg made. */
export const postgres = ({ client, schema, sql, url }: Rust.Shared): Store => ({
  url,
  schema,
  client,
  ...observed(sql)
})

/**
 * Makes a file with about `count` instances, as processes leave it that were killed in the midst of their work. Returns
 * them.
 */
export const make = Effect.fnUntraced(function*(file: string, count: number) {
  const store = yield* sqlite(file)
  const instances = instancesOf(count)
  const started = (starts: string) => instances.filter(({ life }) => life.starts === starts)
  const named = (name: string) => instances.filter(({ life }) => life.name === name)
  const counts = (text: string, expected: number) =>
    waitForRows(store.query, `SELECT instance_id FROM ${text}`, expected)
  const claimed = (activities: number, turns: number) =>
    Effect.andThen(
      counts(`worker_queue WHERE locked_until > ${store.now}`, activities),
      counts(`instance_locks WHERE locked_until > ${store.now}`, turns)
    )

  // Ten processes die of the same work, three of them of some more.
  const poison = named("poison").length
  const shaky = named("shaky").length
  const turns = named("poison-turn").length
  for (let attempt = 1; attempt <= 10; attempt++) {
    const tags = attempt <= 3 ? ["poison", "shaky"] : ["poison"]
    yield* Effect.scoped(Effect.gen(function*() {
      const process = yield* run(store, {
        hangs: true,
        settings: {
          workerTagFilter: "tags",
          workerTagFilterTags: tags,
          workerConcurrency: poison + shaky,
          orchestrationConcurrency: turns
        }
      })
      if (attempt === 1) {
        yield* start(store, [...named("poison"), ...named("shaky")])
        yield* claimed(poison + shaky, 0)
        yield* counts(`orchestrator_queue`, 0)
        yield* start(store, named("poison-turn"))
      }
      yield* claimed(poison + (attempt <= 3 ? shaky : 0), turns)
      yield* process.kill
    }))
    yield* expire(store)
  }

  // One that works; its worker takes no tags.
  yield* Effect.scoped(Effect.gen(function*() {
    yield* hide(store)
    const process = yield* run(store, { hangs: false, settings: few })
    yield* start(store, started("running"))
    yield* resting(store)
    yield* send(store, started("running"), "soon")
    yield* resting(store)
    yield* process.kill
  }))

  // One that is killed in the midst of its work.
  yield* Effect.scoped(Effect.gen(function*() {
    const held = named("held").length
    const stuck = named("stuck").length
    const process = yield* run(store, {
      hangs: true,
      settings: { workerConcurrency: held, orchestrationConcurrency: stuck }
    })
    yield* start(store, started("last").filter(({ life }) => life.orchestration !== "Stuck"))
    yield* claimed(held, 0)
    yield* resting(store, held)
    yield* start(store, named("stuck"))
    yield* claimed(held, stuck)
    yield* process.kill
  }))
  yield* reveal(store)

  // Clients alone.
  yield* start(store, started("unclaimed"))
  yield* send(store, instances, "queued")
  return instances
})

/** A copy with everything that is in the log beside the file. */
export const copy = (file: string, to: string): void => {
  for (const suffix of ["", "-wal"]) if (existsSync(file + suffix)) copyFileSync(file + suffix, to + suffix)
}

/** Lets all locks expire. */
export const expire = ({ write }: FileStore): Effect.Effect<void> =>
  write(
    `UPDATE worker_queue SET locked_until = 1 WHERE locked_until IS NOT NULL;
     UPDATE instance_locks SET locked_until = 1;
     UPDATE sessions SET locked_until = 1`
  )

/** Lets a Rust process run the instances until all have ended that ever end. */
export const finish = Effect.fnUntraced(function*(store: Store, instances: ReadonlyArray<Instance>) {
  yield* Effect.scoped(Effect.gen(function*() {
    yield* run(store, { hangs: false, settings: { ...few, workerTagFilter: "any" } })
    yield* resting(store)
    yield* send(store, instances, "later")
    yield* done(store)
  }))
})

/** Waits until nothing is left but what lies far in the future. */
export const done = ({ future, query }: Pick<Store, "query" | "future">) =>
  waitForRows(
    query,
    `SELECT instance_id, 'orchestrator' AS queue FROM orchestrator_queue WHERE visible_at < ${future}
     UNION ALL SELECT instance_id, 'worker' FROM worker_queue`,
    0
  )

/** Waits until nothing is to be done but `activities`, and what the running process does not take. */
export const resting = ({ now, query }: Pick<Store, "query" | "now">, activities = 0) =>
  waitForRows(
    query,
    `SELECT instance_id, 'orchestrator' AS queue FROM orchestrator_queue WHERE visible_at <= ${now}
     UNION ALL SELECT instance_id, 'worker' FROM worker_queue WHERE visible_at <= ${now} AND tag IS NULL`,
    activities
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** Waits until `rows` selects that many; says which ones it finds, should its test give up. */
const waitForRows = (query: Query, rows: string, expected: number) =>
  waitUntil(
    Effect.map(
      query<{ n: number | string }>(`SELECT count(*) AS n FROM (${rows}) AS found`),
      ([found]) => Number(found!.n) === expected
    )
  ).pipe(
    Effect.onInterrupt(() => Effect.map(query(rows), (left) => console.error(`${expected} are expected of`, left)))
  )

/** With more, SQLite refuses locks, and duroxide tries again later. */
const few = { workerConcurrency: 2, orchestrationConcurrency: 2 }

const run = ({ schema, url }: Store, options: { readonly hangs: boolean; readonly settings: object }) =>
  Effect.tap(
    ChildProcess.start("rustLives", Rust.binary, url, schema, JSON.stringify(options)),
    // One that hangs may do so before it can say anything.
    ({ printed }) => options.hangs ? Effect.void : printed("ready")
  )

const start = ({ client }: Store, instances: ReadonlyArray<Instance>) =>
  Effect.promise(async () => {
    for (const { id, input, life } of instances) {
      await client.startOrchestration(id, life.orchestration, JSON.stringify(input))
    }
  })

const send = ({ client }: Store, instances: ReadonlyArray<Instance>, when: "soon" | "queued" | "later") =>
  Effect.promise(async () => {
    for (const { id, life } of instances) for (const message of life[when] ?? []) await deliver(client, id, message)
  })

const deliver = (client: Rust.Client, instance: string, message: Message): Promise<void> => {
  const id = `${instance}${message.to ?? ""}`
  if ("cancel" in message) return client.cancelInstance(id, message.cancel)
  const data = JSON.stringify(message.data)
  return "raise" in message ? client.raiseEvent(id, message.raise, data) : client.enqueueEvent(id, message.send, data)
}

/** Puts off the messages of work that hangs, so that another process can work. */
const hide = ({ write }: FileStore) =>
  write("UPDATE orchestrator_queue SET visible_at = visible_at + 86400000 WHERE instance_id LIKE 'poison-turn-%'")

const reveal = ({ write }: FileStore) =>
  write("UPDATE orchestrator_queue SET visible_at = visible_at - 86400000 WHERE instance_id LIKE 'poison-turn-%'")
