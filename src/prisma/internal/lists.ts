/**
 * Lists and counts of instances.
 *
 * An index has the instances of each status and name by the time of their creation. A list without a better index reads
 * the newest of each status and name, and merges them: so a page costs the same however many instances there are. What
 * no index has is looked for in the instances of one page, which then may be short.
 */
import * as Effect from "effect/Effect"
import type { InstanceStatus } from "../../model/Instance.ts"
import type { Condition, Encoded } from "../../model/shared/attributes.ts"
import * as coreVersion from "../../model/shared/coreVersion.ts"
import type { AdminDriver, InstanceCount, Listing, ListPosition } from "../../provider/AdminDriver.ts"
import type { Database } from "../Database.ts"
import { Prisma } from "./client.ts"

type Driver = Pick<AdminDriver["Service"], "listInstances" | "readAttributes" | "countInstances">

export const make = ({ query, schemaSql }: Pick<Database["Service"], "query" | "schemaSql">): Driver => ({
  listInstances: Effect.fnUntraced(function*(listing) {
    const hasPrefixIndex = listing.idPrefix !== null && listing.orderBy === "id" &&
      (yield* query<{ readonly yes: boolean }>("listInstances", prefixIndexSql(schemaSql)))[0]!.yes
    const rows = yield* query<ListedRow>("listInstances", pageSql(schemaSql, { ...listing, hasPrefixIndex }))
    const found = rows.filter(({ isFound }) => isFound)
    const page = found.slice(0, listing.limit)
    const last = found.length > listing.limit ? page.at(-1) : rows.find(({ isFound }) => !isFound)
    return { instanceIds: page.map(({ instanceId }) => instanceId), next: last === undefined ? null : position(last) }
  }),

  readAttributes: (instanceIds) =>
    Effect.map(
      query<AttributeRow>(
        "readAttributes",
        Prisma.sql`
          SELECT
            a.instance_id AS "instanceId", a.name, a.text_value AS text, a.number_value AS number,
            round(extract(epoch FROM a.time_value) * 1000)::float8 AS "timeMs"
          FROM ${schemaSql}.attributes AS a
          JOIN ${schemaSql}.instances AS i ON i.instance_id = a.instance_id AND i.created_at = a.created_at
          WHERE a.instance_id = ANY (${[...instanceIds]}::text[])
          ORDER BY a.instance_id, a.name COLLATE "C"`
      ),
      (rows) =>
        rows.map(({ instanceId, name, number, text, timeMs }) => ({
          instanceId,
          name,
          value: text ?? number ?? { timeMs: timeMs! }
        }))
    ),

  countInstances: ({ attributes, byVersion, exactUpTo, orchestrationName, status }) =>
    attributes.length > 0
      ? query<InstanceCount>(
        "countInstances",
        Prisma.sql`
          SELECT
            i.orchestration_name AS "orchestrationName", i.status,
            CASE WHEN ${byVersion}::boolean THEN i.orchestration_version END AS "orchestrationVersion",
            count(*)::float8 AS instances, false AS "isEstimate"
          FROM ${schemaSql}.attributes AS a
          JOIN ${schemaSql}.instances AS i ON i.instance_id = a.instance_id AND i.created_at = a.created_at
          ${
          where([
            ...ofAttribute(attributes[0]!),
            ...attributes.slice(1).map((condition) => attributeSql(schemaSql, condition)),
            Prisma.sql`i.status = ANY (${statusesOf(status)}::text[])`,
            ...(orchestrationName === null ? [] : [Prisma.sql`i.orchestration_name = ${orchestrationName}`])
          ])
        }
          GROUP BY 1, 2, 3`
      )
      : query<InstanceCount>(
        "countInstances",
        Prisma.sql`
        SELECT
          out_name AS "orchestrationName", out_status AS status, out_version AS "orchestrationVersion",
          out_instances::float8 AS instances, out_is_estimate AS "isEstimate"
        FROM ${schemaSql}.dx_count_instances(
          ${statusesOf(status)}::text[], ${orchestrationName}::text, ${byVersion}::boolean, ${exactUpTo}::bigint
        )`
      )
})

/** The statuses of stored instances that a status of the list means; null: any. */
export const statusesOf = (status: Listing["status"]): Array<InstanceStatus> =>
  status === null
    ? ["Running", "Completed", "Failed", "Cancelled"]
    : status === "Ended"
    ? ["Completed", "Failed", "Cancelled"]
    : status === "Blocked" || status === "Paused"
    ? ["Running"]
    : [status]

/** Executions of this package are pinned to this version or a later one. */
export const firstOwnMajor = coreVersion.supported.min.major

// internal

interface AttributeRow {
  readonly instanceId: string
  readonly name: string
  readonly text: string | null
  readonly number: number | null
  readonly timeMs: number | null
}

interface ListedRow {
  readonly instanceId: string
  readonly createdAtUs: number
  /** False for the last instance that was looked at, where more may follow. */
  readonly isFound: boolean
}

const position = ({ createdAtUs, instanceId }: ListedRow): ListPosition => ({ createdAtUs, instanceId })

/** A listing, and whether an index leads to the ids with a prefix. */
interface Planned extends Listing {
  readonly hasPrefixIndex: boolean
}

/**
 * Ids with a prefix follow each other in an index that sorts by bytes: the primary key in a database with such a
 * collation, or an index that an operator has added.
 */
const prefixIndexSql = (schemaSql: Prisma.Sql) =>
  Prisma.sql`
    SELECT EXISTS (
      SELECT
      FROM pg_index AS x
      JOIN pg_attribute AS a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
      JOIN pg_opclass AS o ON o.oid = x.indclass[0]
      LEFT JOIN pg_collation AS c ON c.oid = x.indcollation[0]
      JOIN pg_database AS d ON d.datname = current_database()
      WHERE x.indrelid = ${`${schemaSql.sql}.instances`}::regclass AND x.indisvalid AND x.indpred IS NULL
        AND a.attname = 'instance_id'
        AND (
          o.opcname IN ('text_pattern_ops', 'varchar_pattern_ops')
          OR c.collname IN ('C', 'POSIX')
          OR (c.collname = 'default' AND d.datcollate IN ('C', 'POSIX'))
        )
    ) AS yes`

/**
 * Most instances that one page looks at, of each status and name. Deletions read pages of those that ended before a
 * time: most instances of that age have ended, so twice as many as asked for fill the page, at a fifth of the cost.
 */
const mostRead = ({ endedBeforeMs, limit }: Listing) => endedBeforeMs === null ? 1_000 : Math.min(1_000, 2 * limit)

const pageSql = (schemaSql: Prisma.Sql, listing: Planned) => {
  const { limit, orderBy } = listing
  const filters = filtersOf(schemaSql, listing)
  // One more than asked for says whether any follows.
  const read = filters.length === 0 ? limit + 1 : Math.max(limit + 1, mostRead(listing))
  const order = orders[orderBy]
  return Prisma.sql`
    WITH looked_at AS MATERIALIZED (
      ${sourceSql(schemaSql, listing, read)}
    ),
    found AS (
      SELECT i.instance_id, i.created_at
      FROM looked_at AS i
      ${where(filters)}
      ORDER BY ${order.sql}
      LIMIT ${limit + 1}::bigint
    )
    (SELECT ${rowSql}, true AS "isFound" FROM found AS i ORDER BY ${order.sql})
    UNION ALL
    (
      SELECT ${rowSql}, false AS "isFound"
      FROM looked_at AS i
      WHERE (SELECT count(*) FROM looked_at) = ${read}::bigint
      ORDER BY ${order.reversedSql}
      LIMIT 1
    )`
}

const rowSql = Prisma.sql`
  i.instance_id AS "instanceId", (extract(epoch FROM i.created_at) * 1000000)::float8 AS "createdAtUs"`

const ascending = Prisma.sql`i.created_at, i.instance_id`
const descending = Prisma.sql`i.created_at DESC, i.instance_id DESC`

const orders = {
  newest: { sql: descending, reversedSql: ascending },
  oldest: { sql: ascending, reversedSql: descending },
  id: { sql: Prisma.sql`i.instance_id`, reversedSql: Prisma.sql`i.instance_id DESC` }
}

const where = (conditions: ReadonlyArray<Prisma.Sql>) =>
  conditions.length === 0 ? Prisma.empty : Prisma.sql`WHERE ${Prisma.join([...conditions], " AND ")}`

/** The first instances by an index, in the order of the list. */
const sourceSql = (schemaSql: Prisma.Sql, listing: Planned, read: number) => {
  const { orchestrationName, orderBy, parentInstanceId } = listing
  const bounds = boundsOf(listing)
  if (source(listing) === "attribute") return byAttributeSql(schemaSql, listing, read)
  const end = Prisma.sql`ORDER BY ${orders[orderBy].sql} LIMIT ${read}::bigint`
  if (orderBy === "id") return Prisma.sql`SELECT i.* FROM ${schemaSql}.instances AS i ${where(bounds)} ${end}`
  if (parentInstanceId !== null) {
    const ofParent = Prisma.sql`i.parent_instance_id = ${parentInstanceId}`
    return Prisma.sql`SELECT i.* FROM ${schemaSql}.instances AS i ${where([ofParent, ...bounds])} ${end}`
  }
  if (listing.status === "Blocked") {
    return Prisma.sql`
      SELECT i.*
      FROM ${schemaSql}.blocked_instances AS b
      JOIN ${schemaSql}.instances AS i ON i.instance_id = b.instance_id
      ${where(bounds)}
      ${end}`
  }
  const ofGroup = Prisma.sql`i.status = g.out_status AND i.orchestration_name = g.out_name`
  return Prisma.sql`
    SELECT i.*
    FROM ${schemaSql}.dx_groups_of_instances(${statusesOf(listing.status)}::text[], ${orchestrationName}::text) AS g
    CROSS JOIN LATERAL (
      SELECT i.* FROM ${schemaSql}.instances AS i ${where([ofGroup, ...bounds])} ${end}
    ) AS i
    ${end}`
}

/** What leads to the instances, in the order of the list. */
const source = ({ attributes, orderBy, parentInstanceId, status }: Planned) =>
  orderBy === "id"
    ? "id"
    : parentInstanceId !== null
    ? "parent"
    : status === "Blocked"
    ? "block"
    : attributes.length > 0
    ? "attribute"
    : "group"

/** The condition whose index leads to the instances: an equality, if there is one. */
const leading = ({ attributes }: Planned): Condition =>
  attributes.find((condition) => "equals" in condition) ?? attributes[0]!

/** Most instances in a range that are read at once, and sorted. */
const mostSorted = 10_000

/** The first instances by an attribute. */
const byAttributeSql = (schemaSql: Prisma.Sql, listing: Planned, read: number) => {
  const { after, createdBeforeMs, createdFromMs, orderBy } = listing
  const condition = leading(listing)
  const isEqual = "equals" in condition
  const kind = isEqual ? kindOf(condition.equals) : condition.kind
  const textOf = (value: Encoded | null) =>
    value === null ? null : String(typeof value === "object" ? value.timeMs : value)
  return Prisma.sql`
    SELECT i.*
    FROM ${schemaSql}.dx_instances_of_attribute(
      ${condition.name}::text, ${kind}::text, ${isEqual ? textOf(condition.equals) : null}::text,
      ${isEqual ? null : textOf(condition.from)}::text, ${isEqual ? null : textOf(condition.below)}::text,
      ${timeSql(createdFromMs)}, ${timeSql(createdBeforeMs)},
      ${after === null ? Prisma.sql`NULL` : positionSql(after)}, ${after?.instanceId ?? null}::text,
      ${orderBy === "newest"}::boolean, ${mostSorted}::bigint, ${read}::bigint
    ) AS i
    ORDER BY ${orders[orderBy].sql}
    LIMIT ${read}::bigint`
}

const kindOf = (value: Encoded) => typeof value === "object" ? "time" : typeof value === "number" ? "number" : "text"

const timeSql = (ms: number | null) => Prisma.sql`to_timestamp(${ms}::float8 / 1000)`

const positionSql = ({ createdAtUs }: ListPosition) =>
  Prisma.sql`'epoch'::timestamptz + ${createdAtUs}::float8 * '1 microsecond'::interval`

/** What the row of an attribute, `a`, must be. */
const ofAttribute = (condition: Condition): Array<Prisma.Sql> => {
  const named = Prisma.sql`a.name = ${condition.name}`
  if ("equals" in condition) {
    const { equals } = condition
    return [
      named,
      typeof equals === "string"
        ? Prisma.sql`a.text_value = ${equals}`
        : typeof equals === "number"
        ? Prisma.sql`a.number_value = ${equals}::float8`
        : Prisma.sql`a.time_value = ${timeSql(equals.timeMs)}`
    ]
  }
  const { below, from, kind } = condition
  const column = kind === "number" ? Prisma.sql`a.number_value` : Prisma.sql`a.time_value`
  const end = (value: number) => kind === "number" ? Prisma.sql`${value}::float8` : timeSql(value)
  return [
    named,
    ...(from === null ? [] : [Prisma.sql`${column} >= ${end(from)}`]),
    ...(below === null ? [] : [Prisma.sql`${column} < ${end(below)}`])
  ]
}

/**
 * What an instance, `i`, must have. A scalar subquery is one look-up by the key, and the name leads to no other index,
 * whatever the statistics say.
 */
const attributeSql = (schemaSql: Prisma.Sql, condition: Condition) => {
  const [, ...compared] = ofAttribute(condition)
  return Prisma.sql`(
    SELECT ${Prisma.join(compared, " AND ")}
    FROM ${schemaSql}.attributes AS a
    WHERE a.instance_id = i.instance_id AND a.name || '' = ${condition.name} AND a.created_at = i.created_at
  )`
}

/** What the index of the source answers: behind the last page, and created between two times. */
const boundsOf = (
  { after, createdBeforeMs, createdFromMs, hasPrefixIndex, idPrefix, orderBy }: Planned
): Array<Prisma.Sql> => {
  return [
    ...(createdFromMs === null ? [] : [Prisma.sql`i.created_at >= ${timeSql(createdFromMs)}`]),
    ...(createdBeforeMs === null ? [] : [Prisma.sql`i.created_at < ${timeSql(createdBeforeMs)}`]),
    ...(after === null ? [] : [
      orderBy === "id"
        ? Prisma.sql`i.instance_id > ${after.instanceId}`
        : Prisma.sql`
          (i.created_at, i.instance_id) ${orderBy === "newest" ? Prisma.sql`<` : Prisma.sql`>`}
            (${positionSql(after)}, ${after.instanceId})`
    ]),
    ...(hasPrefixIndex ? [prefixSql(idPrefix!)] : [])
  ]
}

/** What is looked for in the instances that were read. */
const filtersOf = (schemaSql: Prisma.Sql, listing: Planned): Array<Prisma.Sql> => {
  const {
    customStatus,
    error,
    hasPrefixIndex,
    idPrefix,
    isRetrying,
    isRoot,
    orderBy,
    orchestrationName,
    orchestrationVersion
  } = listing
  const { endedBeforeMs, exceptDuroxide, parentInstanceId, status, updatedBeforeMs, updatedFromMs } = listing
  const by = source(listing)
  const isByGroup = by === "group"
  // An equality that has led to the instances.
  const known = by === "attribute" && "equals" in leading(listing) ? leading(listing) : undefined
  return [
    ...listing.attributes.filter((one) => one !== known).map((one) => attributeSql(schemaSql, one)),
    ...(isByGroup || status === null ? [] : [Prisma.sql`i.status = ANY (${statusesOf(status)}::text[])`]),
    ...(isByGroup || orchestrationName === null ? [] : [Prisma.sql`i.orchestration_name = ${orchestrationName}`]),
    ...(orderBy !== "id" || parentInstanceId === null
      ? []
      : [Prisma.sql`i.parent_instance_id = ${parentInstanceId}`]),
    ...(orchestrationVersion === null ? [] : [Prisma.sql`
      COALESCE(
        i.orchestration_version,
        -- Before its first turn, its route says which version it asks for.
        CASE WHEN split_part(i.route, ' ', 2) LIKE '=%' THEN substr(split_part(i.route, ' ', 2), 2) END
      ) = ${orchestrationVersion}`]),
    ...(isRoot ? [Prisma.sql`i.parent_instance_id IS NULL`] : []),
    ...(hasPrefixIndex || idPrefix === null ? [] : [prefixSql(idPrefix)]),
    ...(updatedFromMs === null ? [] : [Prisma.sql`i.updated_at >= ${timeSql(updatedFromMs)}`]),
    ...(updatedBeforeMs === null ? [] : [Prisma.sql`i.updated_at < ${timeSql(updatedBeforeMs)}`]),
    ...(customStatus === null ? [] : [contains(Prisma.sql`i.custom_status`, customStatus)]),
    ...(error === null ? [] : [errorSql(schemaSql, status, error)]),
    ...(endedBeforeMs === null && !exceptDuroxide ? [] : [Prisma.sql`
      EXISTS (
        SELECT FROM ${schemaSql}.executions AS e
        WHERE e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
          AND (${endedBeforeMs}::bigint IS NULL OR e.completed_at < ${timeSql(endedBeforeMs ?? 0)})
          AND (NOT ${exceptDuroxide} OR e.duroxide_version_major >= ${firstOwnMajor}::integer)
      )`]),
    ...(isRetrying ? [retryingSql(schemaSql)] : []),
    ...(status === "Blocked" ? [blockedSql(schemaSql)] : []),
    // Of the table: the function takes a row of it.
    ...(status === "Paused"
      ? [Prisma.sql`(
          SELECT ${schemaSql}.dx_pause_of(p) FROM ${schemaSql}.instances AS p WHERE p.instance_id = i.instance_id
        ) IS NOT NULL`]
      : [])
  ]
}

/** Whether a column contains a text, in upper or lower case. */
const contains = (column: Prisma.Sql, part: string) => Prisma.sql`strpos(lower(${column}), lower(${part})) > 0`

/** Whether the failure of the instance `i`, the reason of its cancellation, or what blocks it contains a text. */
const errorSql = (schemaSql: Prisma.Sql, status: Listing["status"], text: string) => {
  const statuses = statusesOf(status)
  const failure = Prisma.sql`
    FROM ${schemaSql}.executions AS e
    WHERE e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
      AND ${contains(Prisma.sql`regexp_replace(e.output, '^canceled: ', '')`, text)}`
  const block = blockedSql(schemaSql, contains(Prisma.sql`b.problem`, text))
  if (!statuses.includes("Running")) {
    return Prisma.sql`i.status IN ('Failed', 'Cancelled') AND EXISTS (SELECT ${failure})`
  }
  if (statuses.length === 1) return block
  // Not EXISTS: inside CASE, PostgreSQL may plan it as one read of the whole table.
  return Prisma.sql`CASE
    WHEN i.status IN ('Failed', 'Cancelled') THEN (SELECT true ${failure} LIMIT 1)
    WHEN i.status = 'Running' THEN ${block}
  END`
}

/** Whether the instance `i` has a block, `b`, that holds and meets a condition. */
const blockedSql = (schemaSql: Prisma.Sql, condition = Prisma.sql`true`) =>
  Prisma.sql`EXISTS (
    SELECT FROM ${schemaSql}.blocked_instances AS b
    WHERE b.instance_id = i.instance_id AND ${condition}
      AND ${schemaSql}.dx_is_blocked(b, i.current_execution_id, i.created_at)
  )`

/** Keys of JSON: in a payload, which is a text in it, their quotes are escaped. */
const retryingSql = (schemaSql: Prisma.Sql) =>
  Prisma.sql`(
    EXISTS (
      SELECT FROM ${schemaSql}.worker_queue AS w
      WHERE w.instance_id = i.instance_id AND w.execution_id = i.current_execution_id
        AND (w.attempt_count > 1 OR strpos(w.work_item, '"try_number":') > 0)
    )
    OR EXISTS (
      SELECT
      FROM ${schemaSql}.orchestrator_queue AS q
      CROSS JOIN LATERAL (
        SELECT substring(h.event_data FROM '"type":"([A-Za-z]+)"') AS type
        FROM ${schemaSql}.history AS h
        WHERE h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id
          AND h.event_id < substring(q.work_item FROM '"id":([0-9]+)')::bigint
          AND h.event_data NOT LIKE '%"type":"TimerCreated"%'
        ORDER BY h.event_id DESC
        LIMIT 1
      ) AS before
      WHERE q.instance_id = i.instance_id AND q.work_item LIKE '{"TimerFired"%' AND before.type = 'ActivityFailed'
    )
  )`

const prefixSql = (prefix: string) =>
  Prisma.sql`i.instance_id LIKE ${`${prefix.replaceAll(/[\\%_]/g, String.raw`\$&`)}%`}`
