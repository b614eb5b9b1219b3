/**
 * Compares a file with the target, batch by batch: rows with a key one by one, messages and activities of an instance
 * as a set and by their order.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { createHash } from "node:crypto"
import { counted } from "../../model/shared/quantities.ts"
import * as SqliteError from "../SqliteError.ts"
import * as Batches from "./batches.ts"
import * as Differences from "./differences.ts"
import * as Examine from "./examine.ts"
import * as FileLayout from "./fileLayout.ts"
import * as Progress from "./progress.ts"
import * as Rows from "./rows.ts"
import * as SqliteFile from "./sqliteFile.ts"
import * as Tables from "./tables.ts"
import * as Target from "./target.ts"

export interface Options {
  readonly file: string
  readonly target: Target.Options
  /** How many differences the report lists; all are counted. Defaults to 100. */
  readonly maxDifferences?: number | undefined
  /** Called after each batch. */
  readonly onProgress?: Progress.OnProgress
}

export interface Report {
  readonly file: string
  readonly schema: string
  /** Whether the target equals the file. */
  readonly isEqual: boolean
  /** State of the import of this file, as the file is now. */
  readonly import: "finished" | "unfinished" | "never"
  /** Instances of the file, without those that an import has left out. */
  readonly instances: number
  /** Instances with a difference. */
  readonly differingInstances: number
  /** Ids that an import with `keep` has left out, which are not compared. */
  readonly kept: number
  readonly tables: ReadonlyArray<Differences.TableReport>
  /** The first ones. */
  readonly differences: ReadonlyArray<Differences.Difference>
  readonly differenceCount: number
  readonly durationMs: number
}

export const run = Effect.fnUntraced(function*(
  options: Options
): Effect.fn.Return<Report, SqliteError.Reason, Scope.Scope> {
  const started = yield* Clock.currentTimeMillis
  const { maxDifferences = 100, onProgress } = options
  if (!(Number.isInteger(maxDifferences) && maxDifferences >= 0)) {
    return yield* new SqliteError.InvalidInput({ field: "maxDifferences", problem: "it must be a whole number" })
  }
  const file = yield* SqliteFile.open(options.file)
  const has = yield* FileLayout.read(file)
  const target = yield* Target.open(options.target)
  const examined = yield* Examine.examine(file, has, onProgress)
  const imported = (yield* Target.imports(target)).find(({ fingerprint }) => fingerprint === examined.fingerprint)
  const shape: Tables.Shape = { has, served: imported?.served ?? [], noTag: yield* Target.noTag(target) }
  const kept = new Set(imported?.kept)
  const differences = Differences.make(maxDifferences)
  const report = yield* Progress.phase(onProgress, "comparing", examined.rows)

  const sources = Tables.all.filter((table) => Tables.isPresent(table, has))
  const ofFile = (table: Tables.Table, range?: Parameters<typeof Rows.rows>[4]) =>
    fileRows(file, table, shape, kept, range)
  let instances = 0
  let done = 0
  for (let after: string | undefined;;) {
    const batch = yield* Batches.next(file, has, after, 500)
    if (batch === undefined) break
    after = batch.ids.at(-1)
    const ids = batch.ids.filter((id) => !kept.has(id))
    instances += ids.length
    for (const table of Tables.state) {
      done += sources.includes(table)
        ? yield* compareKeyed(differences, table, ofFile(table, batch.range), targetRows(target, table, ids), file)
        : 0
    }
    for (const name of ["orchestrator_queue", "worker_queue"] as const) {
      const tables = sources.filter((table) => table.name === name)
      const inFile = yield* file.reading(() => tables.flatMap((table) => [...ofFile(table, batch.range)]))
      const inTarget = yield* all(targetRows(target, tables[0]!, ids))
      compareSets(differences, tables[0]!, inFile, inTarget)
      done += inFile.length
    }
    const locks = differences.of("instance_locks")
    for (const instanceId of yield* lockedOf(target, ids)) {
      locks.inTarget.add([instanceId])
      differences.add({ table: "instance_locks", instanceId, row: "", kind: "additional", columns: [] })
    }
    yield* report(done)
  }
  const activities = sources.find(({ name }) => name === "worker_queue")!
  const withoutInstance = yield* file.reading(() => [...ofFile(activities, Rows.noInstance)])
  if (withoutInstance.length > 0) {
    const inTarget = yield* all(targetRows(target, activities, null))
    // Nothing says which of the others come from the file.
    compareSets(differences, activities, withoutInstance, matching(activities, withoutInstance, inTarget))
  }
  const found = sources.find(({ name }) => name === "sessions")
  if (found !== undefined) {
    // An import keeps a session that the target has. Without a lock, its last worker and the time of that decide
    // nothing.
    const sessions = { ...found, columns: found.columns.slice(0, 1) }
    const inFile = yield* file.reading(() => [...ofFile(sessions)])
    const inTarget = yield* all(targetRows(target, sessions, inFile.map(([id]) => String(id))))
    compareSets(differences, sessions, inFile, inTarget)
  }
  yield* report(examined.rows)
  const { differenceCount, ...rest } = differences.result()
  return {
    file: options.file,
    schema: target.schema,
    isEqual: differenceCount === 0,
    import: imported === undefined ? "never" : imported.finishedAt === null ? "unfinished" : "finished",
    instances,
    kept: kept.size,
    differenceCount,
    ...rest,
    durationMs: (yield* Clock.currentTimeMillis) - started
  }
})

export const render = (report: Report): string => {
  const width = Math.max(...report.tables.map(({ table }) => table.length), 5)
  const line = ({ inFile, inTarget, table }: Differences.TableReport) =>
    `${table.padEnd(width)}  ${String(inFile.rows).padStart(10)}  ${String(inTarget.rows).padStart(10)}  ${
      inFile.checksum === inTarget.checksum ? `equal  ${inFile.checksum.slice(0, 16)}` : "DIFFERS"
    }`
  const difference = ({ columns, instanceId, kind, row, table }: Differences.Difference) =>
    `  ${table}${instanceId === null ? "" : `, instance ${instanceId}`}${row === "" ? "" : `, ${row}`}: ${kind}${
      columns.length === 0 ? "" : ` in ${columns.join(", ")}`
    }`
  const more = report.differenceCount - report.differences.length
  return [
    `${report.file} and schema ${report.schema}: ${
      report.isEqual ? "equal" : counted(report.differenceCount, "difference")
    }`,
    `import: ${report.import}; ${counted(report.instances, "instance")} compared, ${report.differingInstances} differ` +
    (report.kept > 0 ? `, ${report.kept} kept by the target are left out` : ""),
    `${"table".padEnd(width)}  ${"file".padStart(10)}  ${"target".padStart(10)}`,
    ...report.tables.map(line),
    ...report.differences.map(difference),
    ...(more > 0 ? [`  and ${more} more`] : [])
  ].join("\n")
}

// -----------------------------------------------------------------------------
// internal: reading both sides alike
// -----------------------------------------------------------------------------

function* fileRows(
  file: SqliteFile.SqliteFile,
  table: Tables.Table,
  shape: Tables.Shape,
  kept: ReadonlySet<string>,
  range?: Parameters<typeof Rows.rows>[4]
): Generator<Differences.Compared, void, undefined> {
  const id = idIndex(table)
  const asDerived = derivedOf(table).map(() => null)
  for (const { values } of Rows.rows(file, table, shape, "payloadBytes", range)) {
    if (id !== -1 && kept.has(String(values[id]))) continue
    yield [
      ...values.map((value) => value instanceof Uint8Array ? createHash("sha256").update(value).digest("hex") : value),
      ...asDerived
    ]
  }
}

/** Finds which of the instances have a lock. */
const lockedOf = ({ run }: Target.Target, ids: ReadonlyArray<string>) =>
  Effect.map(
    run(
      `SELECT instance_id AS id FROM instance_locks WHERE instance_id = ANY($1) ORDER BY instance_id COLLATE "C"`,
      [ids]
    ),
    (rows) => rows.map(({ id }) => String(id))
  )

/**
 * Pages of rows in the order of the file; those of a table without a key in one. With null for the ids, rows without an
 * instance.
 */
const targetRows = (target: Target.Target, table: Tables.Table, ids: ReadonlyArray<string> | null) => {
  const { columns, key, name } = table
  const stored = columns.map((column) =>
    column.kind === "time"
      ? `CASE WHEN isfinite(t.${column.name}) THEN round(extract(epoch FROM t.${column.name}) * 1000)::bigint::text
           ELSE t.${column.name}::text END`
      : column.kind === "number"
      ? `t.${column.name}::text`
      : column.isPayload
      ? `encode(sha256(convert_to(t.${column.name}, 'UTF8')), 'hex')`
      : `t.${column.name}`
  )
  const derived = derivedOf(table).map(({ name, sql }) =>
    `CASE WHEN t.${name} IS DISTINCT FROM ${sql} THEN COALESCE(t.${name}, '') END`
  )
  const owner = name === "sessions" ? "session_id" : "instance_id"
  const order = key.length > 0
    ? key.map((column) => ordered(table, column))
    : name === "sessions"
    ? [`t.session_id COLLATE "C"`]
    : ["t.id"]
  const kinds = [...columns.map(({ kind }) => kind), ...derived.map(() => "text" as const)]
  const keyIndexes = key.map((column) => columns.findIndex(({ name }) => name === column))
  // More than the events of a batch, so that only an instance with more needs a second page.
  const pageSize = key.length > 0 ? 2 * Batches.maxEvents : undefined
  return {
    /** Rows after one with a key, or from the first on; `isLast` if no row follows them. */
    page: (after: Differences.Compared | undefined) => {
      const bound = after === undefined
        ? ""
        : `AND (${order.join(", ")}) > (${
          keyIndexes.map((_, index) => `$${index + 2}${castOf(table, key[index]!)}`).join(", ")
        })`
      return Effect.map(
        target.run(
          `SELECT ${[...stored, ...derived].map((sql, index) => `${sql} AS c${index}`).join(", ")} FROM ${name} AS t
           WHERE ${ids === null ? `$1::text[] IS NULL AND t.${owner} IS NULL` : `t.${owner} = ANY($1)`} ${bound}
           ORDER BY ${order.join(", ")} ${pageSize === undefined ? "" : `LIMIT ${pageSize}`}`,
          [ids, ...(after === undefined ? [] : keyIndexes.map((index) => after[index]))]
        ),
        (rows) => ({
          isLast: pageSize === undefined || rows.length < pageSize,
          rows: rows.map((row): Differences.Compared =>
            kinds.map((kind, index) => {
              const value = row[`c${index}`] as string | null
              return value === null || kind === "text" || value.endsWith("infinity") ? value : Number(value)
            })
          )
        })
      )
    }
  }
}

type Pages = ReturnType<typeof targetRows>

const all = (pages: Pages) => Effect.map(pages.page(undefined), ({ rows }) => rows)

const derivedOf = ({ name }: Tables.Table) => Tables.derived[name] ?? []

const idIndex = ({ columns }: Tables.Table) => columns.findIndex(({ name }) => name === "instance_id")

const isText = ({ columns }: Tables.Table, name: string) =>
  columns.find((column) => column.name === name)!.kind === "text"

const ordered = (table: Tables.Table, name: string) => isText(table, name) ? `t.${name} COLLATE "C"` : `t.${name}`

const castOf = (table: Tables.Table, name: string) => isText(table, name) ? `::text COLLATE "C"` : "::bigint"

// -----------------------------------------------------------------------------
// internal: comparing
// -----------------------------------------------------------------------------

/** Walks along both sides in the order of the key. Returns the number of rows of the file. */
const compareKeyed = Effect.fnUntraced(function*(
  differences: Differences.Differences,
  table: Tables.Table,
  inFile: Generator<Differences.Compared, void, undefined>,
  inTarget: Pages,
  file: SqliteFile.SqliteFile
) {
  const { columns, key, name } = table
  const names = [...columns, ...derivedOf(table)].map((column) => column.name)
  const keyIndexes = key.map((column) => names.indexOf(column))
  const sums = differences.of(name)
  let read = 0
  const nextOfFile = () => {
    const next = inFile.next()
    if (next.done === true) return undefined
    read++
    sums.inFile.add(next.value)
    return next.value
  }
  const differ = (kind: "missing" | "additional", row: Differences.Compared) =>
    differences.add({
      table: name,
      instanceId: String(row[keyIndexes[0]!]),
      row: keyText(table, row),
      kind,
      columns: []
    })

  let theirs = yield* file.reading(nextOfFile)
  for (let after: Differences.Compared | undefined, isLast = false; !isLast;) {
    const page = yield* inTarget.page(after)
    isLast = page.isLast
    after = page.rows.at(-1)
    theirs = yield* file.reading(() => {
      let one = theirs
      for (const ours of page.rows) {
        sums.inTarget.add(ours)
        while (one !== undefined && order(one, ours, keyIndexes) < 0) {
          differ("missing", one)
          one = nextOfFile()
        }
        if (one === undefined || order(one, ours, keyIndexes) > 0) {
          differ("additional", ours)
          continue
        }
        const file = one
        const different = names.filter((_, index) => file[index] !== ours[index])
        if (different.length > 0) {
          const instanceId = String(ours[keyIndexes[0]!])
          differences.add({ table: name, instanceId, row: keyText(table, ours), kind: "differs", columns: different })
        }
        one = nextOfFile()
      }
      if (page.isLast) { for (; one !== undefined; one = nextOfFile()) differ("missing", one) }
      return one
    })
  }
  return read
})

const compareSets = (
  differences: Differences.Differences,
  table: Tables.Table,
  inFile: ReadonlyArray<Differences.Compared>,
  inTarget: ReadonlyArray<Differences.Compared>
) => {
  const sums = differences.of(table.name)
  const owner = table.name === "sessions" ? 0 : idIndex(table)
  const derived = derivedOf(table)
  const groups = new Map<string | null, Group>()
  const groupOf = (row: Differences.Compared) => {
    const id = row[owner] === null ? null : String(row[owner])
    const known = groups.get(id) ?? { inFile: [], inTarget: [], wrong: [] }
    groups.set(id, known)
    return known
  }
  for (const row of inFile) groupOf(row).inFile.push(textOf(table, row))
  for (const row of inTarget) {
    const group = groupOf(row)
    group.inTarget.push(textOf(table, row))
    group.wrong.push(derived.filter((_, index) => row[table.columns.length + index] !== null).map(({ name }) => name))
  }
  // Ids are new in the target, so only the order within an instance counts.
  for (const [id, { inFile, inTarget, wrong }] of [...groups].sort(([one], [other]) => one! < other! ? -1 : 1)) {
    for (const row of inFile) sums.inFile.add([row])
    inTarget.forEach((row, position) => sums.inTarget.add([row, ...wrong[position]!]))
    const differ = (kind: Differences.Difference["kind"], row: string, columns: ReadonlyArray<string> = []) =>
      differences.add({
        table: table.name,
        instanceId: table.name === "sessions" ? null : id,
        row: table.name === "sessions" ? `session ${id}` : row,
        kind,
        columns
      })
    const place = (position: number) => `number ${position + 1} ${id === null ? "without an instance" : "in its queue"}`
    const left = new Map<string, number>()
    for (const row of inTarget) left.set(row, (left.get(row) ?? 0) + 1)
    let before = differencesIn(inFile, left, (position) => differ("missing", place(position)))
    for (const count of left.values()) {
      for (let i = 0; i < count; i++) {
        before = true
        differ("additional", "")
      }
    }
    if (!before && inFile.some((row, index) => row !== inTarget[index])) differ("order", "")
    const known = new Set(inFile)
    wrong.forEach((columns, position) => {
      if (columns.length > 0 && known.has(inTarget[position]!)) differ("differs", place(position), columns)
    })
  }
}

/**
 * Rows of an instance as texts, and the derived columns of those of the target that are not as an import leaves them.
 */
interface Group {
  readonly inFile: Array<string>
  readonly inTarget: Array<string>
  readonly wrong: Array<ReadonlyArray<string>>
}

/** What the file has of a row. */
const textOf = ({ columns }: Tables.Table, row: Differences.Compared) => JSON.stringify(row.slice(0, columns.length))

/** The rows of the target that the file has. */
const matching = (
  table: Tables.Table,
  inFile: ReadonlyArray<Differences.Compared>,
  inTarget: ReadonlyArray<Differences.Compared>
) => {
  const left = new Map<string, number>()
  for (const row of inFile) left.set(textOf(table, row), (left.get(textOf(table, row)) ?? 0) + 1)
  return inTarget.filter((row) => {
    const text = textOf(table, row)
    const count = left.get(text) ?? 0
    left.set(text, count - 1)
    return count > 0
  })
}

/** Takes the rows out of the set; whether one was not in it. */
const differencesIn = (
  rows: ReadonlyArray<string>,
  set: Map<string, number>,
  missing: (position: number) => void
): boolean => {
  let found = false
  rows.forEach((row, position) => {
    const count = set.get(row) ?? 0
    if (count > 0) return void set.set(row, count - 1)
    found = true
    missing(position)
  })
  return found
}

/** Orders texts by their bytes, like `COLLATE "C"`. */
const order = (one: Differences.Compared, other: Differences.Compared, indexes: ReadonlyArray<number>): number => {
  for (const index of indexes) {
    const [a, b] = [one[index]!, other[index]!]
    if (a === b) continue
    return typeof a === "number" ? a - Number(b) : Buffer.compare(Buffer.from(a), Buffer.from(String(b)))
  }
  return 0
}

const keyText = ({ columns, key }: Tables.Table, row: Differences.Compared) =>
  key.slice(1).map((column) => {
    const value = row[columns.findIndex(({ name }) => name === column)]
    return `${column.replace(/_id$/, "")} ${value}`
  }).join(", ")
