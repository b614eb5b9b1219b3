/**
 * Tasks in pages, for operators.
 *
 * Dead tasks first, the last that died first; then those that have not ended, in the order in which the sweep looks at
 * them; or those that have ended, the last first. An index leads to each of these orders. Bounds: what a name or a
 * status leaves out is read as well.
 */
import * as Effect from "effect/Effect"
import * as Base64Url from "effect/encoding/Base64Url"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Stream from "effect/Stream"
import { isUuid } from "../../model/shared/identifiers.ts"
import { InvalidInput, ProviderError } from "../../provider/ProviderError.ts"
import type { TaskState } from "../../tasks/TaskDriver.ts"
import { Database } from "../Database.ts"
import { Prisma } from "../internal/client.ts"

export type Status = TaskState["status"]

export interface Search {
  /** `Open`: `Pending` or `Running`. Defaults to those that are dead or open. */
  readonly status?: Status | "Open" | undefined
  readonly name?: string | undefined
  /** Whether to read the beginning of each payload. Defaults to false. */
  readonly hasPayloads?: boolean | undefined
  /** Only tasks that were created by then: `createdUntil` of a page. Defaults to now. */
  readonly createdUntil?: string | undefined
}

export interface ListedTask {
  readonly id: string
  readonly name: string
  readonly key: string | null
  readonly status: Status
  /** Attempts begun, and those of them that count. */
  readonly attempts: number
  readonly counted: number
  readonly maxAttempts: number
  /** The failure of the last attempt, as it is stored; or the reason of the cancellation. */
  readonly error: string | null
  readonly workerId: string | null
  /** While it waits for a slot of its limit: its key there, which may be empty. Null otherwise. */
  readonly waitingKey: string | null
  /** The first 10,000 characters of the payload, if they were asked for. */
  readonly payload: string | null
  /** Milliseconds since the Unix epoch, as the next three. */
  readonly createdAtMs: number
  /** When its next attempt may begin; of a task that has ended, when its last one might. */
  readonly runAtMs: number
  /** Null unless it runs. */
  readonly startedAtMs: number | null
  /** When it died, was completed or cancelled; null before. */
  readonly endedAtMs: number | null
}

export interface TaskPage {
  readonly tasks: ReadonlyArray<ListedTask>
  /** Null if no task follows. */
  readonly next: string | null
  readonly createdUntil: string
}

/** `cursor`: `next` of the page before. Fails with `InvalidInput` for any other text. */
export const list = Effect.fnUntraced(function*(
  search: Search & { readonly cursor?: string | undefined; readonly limit: number }
): Effect.fn.Return<TaskPage, ProviderError, Database> {
  const { query, schemaSql } = yield* Database
  const sections = sectionsOf(search.status)
  const after = search.cursor === undefined ? null : positionOf(search.cursor)
  const first = after === null ? 0 : sections.findIndex(({ name }) => name === after?.section)
  if (after === undefined || first === -1) {
    const reason = new InvalidInput({ field: "cursor", problem: "it is not one of a list with the same flags" })
    return yield* new ProviderError({ operation: "listTasks", reason })
  }
  const createdUntil = search.createdUntil ??
    (yield* query<{ readonly now: string }>("readTime", Prisma.sql`SELECT clock_timestamp()::text AS now`))[0]!.now
  const found: Array<Row> = []
  for (const section of sections.slice(first)) {
    const rows = yield* query<Row>(
      "listTasks",
      pageSql(schemaSql, section, {
        ...search,
        createdUntil,
        after: after?.section === section.name ? after : null,
        limit: search.limit + 1 - found.length
      })
    )
    found.push(...rows)
    if (found.length > search.limit) break
  }
  const page = found.slice(0, search.limit)
  const last = page.at(-1)
  return {
    tasks: page.map(({ at: _at, section: _section, ...task }) => task),
    next: found.length > search.limit && last !== undefined ? cursorOf(last) : null,
    createdUntil
  }
})

/** The tasks with these ids, in any order; unknown ids are left out. */
export const read = Effect.fnUntraced(function*(
  ids: ReadonlyArray<string>,
  options: Pick<Search, "hasPayloads"> = {}
): Effect.fn.Return<ReadonlyArray<ListedTask>, ProviderError, Database> {
  const { query, schemaSql } = yield* Database
  const known = ids.filter(isUuid)
  return known.length === 0 ? [] : yield* query<ListedTask>(
    "readTasks",
    Prisma.sql`
      SELECT ${columnsSql(options.hasPayloads ?? false)}
      FROM ${schemaSql}.queue_tasks AS t
      WHERE t.id = ANY (${[...known]}::uuid[])`
  )
})

/** All that match, read page by page. Those that are created meanwhile are not among them. */
export const stream = (search: Search): Stream.Stream<ListedTask, ProviderError, Database> =>
  Stream.paginate(
    { cursor: undefined as string | undefined, createdUntil: search.createdUntil },
    (at) =>
      Effect.map(
        list({ ...search, ...at, limit: 1000 }),
        ({ createdUntil, next, tasks }) =>
          [tasks, next === null ? Option.none() : Option.some({ cursor: next, createdUntil })] as const
      )
  )

// internal

interface Section {
  readonly name: "dead" | "open" | "ended"
  readonly statuses: ReadonlyArray<Status>
  /** What an index orders them by. */
  readonly columnSql: Prisma.Sql
  readonly isNewestFirst: boolean
}

const dead: Section = {
  name: "dead",
  statuses: ["Dead"],
  columnSql: Prisma.sql`t.dead_at`,
  isNewestFirst: true
}

const open = (statuses: ReadonlyArray<Status>): Section => ({
  name: "open",
  statuses,
  columnSql: Prisma.sql`t.look_at`,
  isNewestFirst: false
})

const ended = (status: Status): Section => ({
  name: "ended",
  statuses: [status],
  columnSql: Prisma.sql`t.ended_at`,
  isNewestFirst: true
})

const sectionsOf = (status: Search["status"]): ReadonlyArray<Section> => {
  switch (status) {
    case undefined:
      return [dead, open(["Pending", "Running"])]
    case "Open":
      return [open(["Pending", "Running"])]
    case "Dead":
      return [dead]
    case "Pending":
    case "Running":
      return [open([status])]
    case "Completed":
    case "Cancelled":
      return [ended(status)]
  }
}

interface Row extends ListedTask {
  readonly section: Section["name"]
  /** The time it is ordered by, as a text of the server. */
  readonly at: string
}

const msOf = (columnSql: Prisma.Sql) => Prisma.sql`floor(extract(epoch FROM ${columnSql}) * 1000)::float8`

const columnsSql = (hasPayloads: boolean) =>
  Prisma.sql`
    t.id::text AS id, t.name, t.key, t.status, t.attempt AS attempts, t.attempt - t.uncounted AS counted,
    t.max_attempts AS "maxAttempts", t.error, t.worker_id AS "workerId",
    CASE WHEN NOT t.has_slot AND t.run_at <= clock_timestamp() THEN t.limit_key END AS "waitingKey",
    CASE WHEN ${hasPayloads}::boolean THEN left(t.payload::text, 10000) END AS payload,
    ${msOf(Prisma.sql`t.created_at`)} AS "createdAtMs", ${msOf(Prisma.sql`greatest(t.run_at, 'epoch')`)} AS "runAtMs",
    ${msOf(Prisma.sql`t.started_at`)} AS "startedAtMs",
    ${msOf(Prisma.sql`COALESCE(t.dead_at, t.ended_at)`)} AS "endedAtMs"`

const pageSql = (
  schemaSql: Prisma.Sql,
  { columnSql, isNewestFirst, name, statuses }: Section,
  search: Search & { readonly after: Position | null; readonly limit: number }
) => {
  const directionSql = isNewestFirst ? Prisma.sql`DESC` : Prisma.sql`ASC`
  const conditions = [
    Prisma.sql`${columnSql} IS NOT NULL`,
    Prisma.sql`t.status = ANY (${[...statuses]}::text[])`,
    Prisma.sql`t.created_at <= ${search.createdUntil}::timestamptz`,
    ...(search.name === undefined ? [] : [Prisma.sql`t.name = ${search.name}`]),
    ...(search.after === null ? [] : [
      Prisma.sql`
        (${columnSql}, t.id) ${isNewestFirst ? Prisma.sql`<` : Prisma.sql`>`}
          (${search.after.at}::timestamptz, ${search.after.id}::uuid)`
    ])
  ]
  return Prisma.sql`
    SELECT ${columnsSql(search.hasPayloads ?? false)}, ${name} AS section, ${columnSql}::text AS at
    FROM ${schemaSql}.queue_tasks AS t
    WHERE ${Prisma.join(conditions, " AND ")}
    ORDER BY ${columnSql} ${directionSql}, t.id ${directionSql}
    LIMIT ${search.limit}::bigint`
}

interface Position {
  readonly section: Section["name"]
  readonly at: string
  readonly id: string
}

const cursorOf = ({ at, id, section }: Position) => Base64Url.encode(JSON.stringify([section, at, id]))

/** Undefined for anything but a cursor. */
const positionOf = (cursor: string): Position | undefined => {
  try {
    const [section, at, id] = JSON.parse(Result.getOrThrow(Base64Url.decodeString(cursor))) as ReadonlyArray<unknown>
    return ["dead", "open", "ended"].includes(String(section)) && typeof at === "string" &&
        /^[\d-]+ [\d:.+-]+$|^infinity$/.test(at) &&
        typeof id === "string" && isUuid(id)
      ? { section: section as Section["name"], at, id }
      : undefined
  } catch {
    return undefined
  }
}
