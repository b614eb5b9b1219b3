/**
 * Compares a file with the target, batch by batch: rows with a key one by one, messages and activities of an instance
 * as a set and by their order.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { createHash } from "node:crypto"
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
  /** Of this file, as it is now. */
  readonly import: "finished" | "unfinished" | "never"
  /** Instances of the file, without those that an import has left out. */
  readonly instances: number
  /** Those with a difference. */
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
  const ofFile = (table: Tables.Table, range?: Rows.Range) => fileRows(file, table, shape, kept, range)
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
    yield* report(done)
  }
  const sessions = sources.find(({ name }) => name === "sessions")
  if (sessions !== undefined) {
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
      report.isEqual ? "equal" : `${report.differenceCount} difference(s)`
    }`,
    `import: ${report.import}; ${report.instances} instances compared, ${report.differingInstances} differ` +
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
  range?: Rows.Range
): Generator<Differences.Compared, void, undefined> {
  const id = idIndex(table)
  for (const { values } of Rows.rows(file, table, shape, "payloadBytes", range)) {
    if (id !== -1 && kept.has(String(values[id]))) continue
    yield values.map((value) => value instanceof Uint8Array ? createHash("sha256").update(value).digest("hex") : value)
  }
}

/** Pages of rows in the order of the file; those of a table without a key in one. */
const targetRows = (target: Target.Target, table: Tables.Table, ids: ReadonlyArray<string>) => {
  const { columns, key, name } = table
  const read = columns.map((column) =>
    column.kind === "time"
      ? `round(extract(epoch FROM t.${column.name}) * 1000)::bigint::text`
      : column.kind === "number"
      ? `t.${column.name}::text`
      : column.isPayload
      ? `encode(sha256(convert_to(t.${column.name}, 'UTF8')), 'hex')`
      : `t.${column.name}`
  )
  const owner = name === "sessions" ? "session_id" : "instance_id"
  const order = key.length > 0
    ? key.map((column) => ordered(table, column))
    : name === "sessions"
    ? [`t.session_id COLLATE "C"`]
    : ["t.id"]
  const kinds = columns.map(({ kind }) => kind)
  const keyIndexes = key.map((column) => columns.findIndex(({ name }) => name === column))
  // More than the events of a batch, so that only an instance with more needs a second page.
  const pageSize = key.length > 0 ? 2 * Batches.maxEvents : undefined
  return {
    /** Rows after one with a key, or from the first on; `isLast` if there are no more. */
    page: (after: Differences.Compared | undefined) => {
      const bound = after === undefined
        ? ""
        : `AND (${order.join(", ")}) > (${
          keyIndexes.map((_, index) => `$${index + 2}${castOf(table, key[index]!)}`).join(", ")
        })`
      return Effect.map(
        target.run(
          `SELECT ${read.map((sql, index) => `${sql} AS c${index}`).join(", ")} FROM ${name} AS t
           WHERE t.${owner} = ANY($1) ${bound}
           ORDER BY ${order.join(", ")} ${pageSize === undefined ? "" : `LIMIT ${pageSize}`}`,
          [ids, ...(after === undefined ? [] : keyIndexes.map((index) => after[index]))]
        ),
        (rows) => ({
          isLast: pageSize === undefined || rows.length < pageSize,
          rows: rows.map((row): Differences.Compared =>
            kinds.map((kind, index) => {
              const value = row[`c${index}`] as string | null
              return value === null || kind === "text" ? value : Number(value)
            })
          )
        })
      )
    }
  }
}

type Pages = ReturnType<typeof targetRows>

const all = (pages: Pages) => Effect.map(pages.page(undefined), ({ rows }) => rows)

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
  const keyIndexes = key.map((column) => columns.findIndex((one) => one.name === column))
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
        const different = columns.filter((_, index) => file[index] !== ours[index]).map((column) => column.name)
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
  const groups = new Map<string, { readonly inFile: Array<string>; readonly inTarget: Array<string> }>()
  const group = (side: "inFile" | "inTarget", rows: ReadonlyArray<Differences.Compared>) => {
    for (const row of rows) {
      const id = String(row[owner])
      const known = groups.get(id) ?? { inFile: [], inTarget: [] }
      known[side].push(JSON.stringify(row))
      groups.set(id, known)
    }
  }
  group("inFile", inFile)
  group("inTarget", inTarget)
  // Ids are new in the target, so only the order within an instance counts.
  for (const [id, { inFile, inTarget }] of [...groups].sort(([one], [other]) => one < other ? -1 : 1)) {
    for (const row of inFile) sums.inFile.add([row])
    for (const row of inTarget) sums.inTarget.add([row])
    const differ = (kind: Differences.Difference["kind"], row: string) =>
      differences.add({
        table: table.name,
        instanceId: table.name === "sessions" ? null : id,
        row: table.name === "sessions" ? `session ${id}` : row,
        kind,
        columns: []
      })
    const left = new Map<string, number>()
    for (const row of inTarget) left.set(row, (left.get(row) ?? 0) + 1)
    let before = differencesIn(inFile, left, (position) => differ("missing", `number ${position + 1} in its queue`))
    for (const count of left.values()) {
      for (let i = 0; i < count; i++) {
        before = true
        differ("additional", "")
      }
    }
    if (!before && inFile.some((row, index) => row !== inTarget[index])) differ("order", "")
  }
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

/** As `COLLATE "C"` orders texts: by their bytes. */
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
