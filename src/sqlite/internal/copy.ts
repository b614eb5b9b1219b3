/**
 * Imports a file: reads it whole, copies instances batch by batch, then all work and the release in one transaction.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as SqliteError from "../SqliteError.ts"
import * as Batches from "./batches.ts"
import * as Examine from "./examine.ts"
import * as FileLayout from "./fileLayout.ts"
import * as Pins from "./pins.ts"
import * as Progress from "./progress.ts"
import * as Rows from "./rows.ts"
import * as SqliteFile from "./sqliteFile.ts"
import * as Tables from "./tables.ts"
import * as Target from "./target.ts"

export interface Options {
  /** Path of the main file. Those with the endings `-wal` and `-shm` must be beside it, if there are any. */
  readonly file: string
  readonly target: Target.Options
  /**
   * What happens to an id that the target has: `refuse` fails before anything is written, `keep` leaves the instance of
   * the target as it is and skips that id, `replace` deletes it first. Defaults to `refuse`.
   */
  readonly onConflict?: "refuse" | "keep" | "replace" | undefined
  /**
   * Names of orchestrations whose executions under way are run on by this package. Others stay pinned to Duroxide's own
   * version, and only its processes run them. A name that the file does not have is refused. Another call after the
   * import pins the executions of more names. Defaults to none.
   */
  readonly serve?: ReadonlyArray<string> | undefined
  /** Instances per transaction, from 1 to 10,000; fewer if they have more than 20,000 events. Defaults to 500. */
  readonly batch?: number | undefined
  /** Remove what an import has copied that did not end, of another file or of this one before it was changed. */
  readonly discardUnfinished?: boolean | undefined
  /** Import although locks of the file have not expired: no process may work on it. Defaults to false. */
  readonly ignoreLocks?: boolean | undefined
  /** Called after each batch; what is copied waits for it. */
  readonly onProgress?: Progress.OnProgress
}

export interface Report {
  /** The path that was given. */
  readonly file: string
  readonly schema: string
  /**
   * Whether the file is in WAL mode and has no `-wal` file beside it. Duroxide always leaves one, so this is an
   * incomplete copy, which lacks the newest data, unless another program has closed the file.
   */
  readonly lacksLog: boolean
  /** SHA-256 of all that the file contains, without locks. */
  readonly fingerprint: string
  /** `alreadyImported`: an earlier call has imported all of it, and this one copied nothing. */
  readonly outcome: "imported" | "alreadyImported"
  /** Whether an earlier call has begun it. */
  readonly resumed: boolean
  /** Rows that were written, by table. */
  readonly counts: Readonly<Record<Tables.Name, number>>
  /** Ids that the target had, and kept. */
  readonly kept: ReadonlyArray<string>
  /** How many instances of the target were replaced. */
  readonly replaced: number
  /** How many executions under way were pinned to this package, as `serve` says. */
  readonly served: number
  /**
   * How many executions of the file, by orchestration, are under way and stay pinned to Duroxide: only its processes
   * run them. Of a name of `serve`: those that a process of Duroxide had locked.
   */
  readonly stayPinned: Readonly<Record<string, number>>
  /** How many imports that had not ended were removed, as `discardUnfinished` says. */
  readonly discarded: number
  readonly durationMs: number
}

export const run = Effect.fnUntraced(function*(
  options: Options
): Effect.fn.Return<Report, SqliteError.Reason, Scope.Scope> {
  const started = yield* Clock.currentTimeMillis
  const { batch = 500, onConflict = "refuse", onProgress, serve = [] } = options
  yield* check(options)
  const file = yield* SqliteFile.open(options.file)
  const has = yield* FileLayout.read(file)
  const served = [...new Set(serve)].sort()
  yield* Pins.checkNames(file, served)
  if (options.ignoreLocks !== true) yield* Examine.refuseLocks(file, has)
  const target = yield* Target.open(options.target)
  yield* Target.lock(target)

  const examined = yield* Examine.examine(file, has, onProgress)
  const { fingerprint } = examined
  const imports = yield* Target.imports(target)
  const mine = imports.find((one) => one.fingerprint === fingerprint)
  let discarded = 0
  const report = (
    found: Pick<Target.Import, "counts" | "kept" | "replaced">,
    rest: Pick<Report, "outcome" | "served" | "stayPinned">
  ) =>
    Effect.map(Clock.currentTimeMillis, (now): Report => ({
      file: options.file,
      schema: target.schema,
      lacksLog: file.lacksLog,
      fingerprint,
      resumed: mine !== undefined,
      counts: { ...Tables.noCounts, ...found.counts },
      kept: found.kept,
      replaced: found.replaced,
      discarded,
      durationMs: now - started,
      ...rest
    }))
  const isFinished = mine !== undefined && mine.finishedAt !== null
  for (const one of imports) {
    if (one.finishedAt !== null || one === mine) continue
    if (options.discardUnfinished !== true) {
      if (isFinished) break
      return yield* new SqliteError.ImportUnfinished({ file: one.file, startedAt: one.startedAt.toISOString() })
    }
    yield* Target.discard(target, one.fingerprint)
    discarded++
  }
  if (isFinished) {
    const pins = { file, target, kept: new Set(mine.kept) }
    const all = [...new Set([...mine.served, ...served])].sort()
    if (all.length > mine.served.length) yield* Target.serve(target, fingerprint, all)
    const pinned = served.length === 0 ? 0 : yield* Pins.pin(pins, served)
    return yield* report(mine, { outcome: "alreadyImported", served: pinned, stayPinned: yield* Pins.staying(pins) })
  }
  if (mine !== undefined) yield* refuseOtherOptions(mine, { onConflict, served })

  const shape: Tables.Shape = { has, served, noTag: yield* Target.noTag(target) }
  const state = {
    counts: { ...Tables.noCounts, ...mine?.counts },
    kept: new Set(mine?.kept),
    replaced: mine?.replaced ?? 0,
    after: mine?.lastInstanceId ?? undefined
  }
  if (onConflict === "refuse") yield* refuseTaken(target, file, has, state.after)
  if (mine === undefined) yield* Target.begin(target, { fingerprint, file: file.name, onConflict, served })

  const done = () => Object.values(state.counts).reduce((sum, count) => sum + count, 0)
  const reportRows = yield* Progress.phase(onProgress, "copying", examined.rows, done())

  /** Inserts the rows of a table, those of kept instances left out. */
  const copy = Effect.fnUntraced(function*(table: Tables.Table, range?: Rows.Range) {
    const id = table.columns.findIndex(({ name }) => name === "instance_id")
    const found = Rows.rows(file, table, shape, "text", range)
    for (let ended = false; !ended;) {
      const chunk: Array<Rows.Row["values"]> = []
      ended = yield* file.reading(() => {
        for (let bytes = 0; chunk.length < chunkRows && bytes < chunkBytes;) {
          const next = found.next()
          if (next.done === true) return true
          if (id !== -1 && state.kept.has(String(next.value.values[id]))) continue
          chunk.push(next.value.values)
          bytes += next.value.bytes
        }
        return false
      })
      if (chunk.length > 0) yield* Target.insert(target, table, chunk)
      state.counts[table.name] += chunk.length
    }
  })

  for (;;) {
    const next = yield* Batches.next(file, has, state.after, batch)
    if (next === undefined) break
    yield* Target.transaction(
      target,
      Effect.gen(function*() {
        const taken = yield* Target.taken(target, next.ids)
        if (taken.length > 0 && onConflict === "refuse") return yield* idsTaken(target, taken, taken.length)
        if (onConflict === "replace") yield* Target.remove(target, taken)
        const kept = onConflict === "keep" ? taken : []
        for (const id of kept) state.kept.add(id)
        yield* Target.hold(target, fingerprint, next.ids.filter((id) => !state.kept.has(id)))
        for (const table of Tables.state) if (Tables.isPresent(table, has)) yield* copy(table, next.range)
        yield* Target.setStatuses(target, next.ids)
        const replaced = onConflict === "replace" ? taken.length : 0
        state.replaced += replaced
        const lastInstanceId = next.ids.at(-1)!
        yield* Target.saveProgress(target, fingerprint, { counts: state.counts, kept, lastInstanceId, replaced })
      })
    )
    state.after = next.ids.at(-1)
    yield* reportRows(done())
  }
  const pinned = yield* Target.transaction(
    target,
    Effect.gen(function*() {
      for (const table of Tables.insertedWork) if (Tables.isPresent(table, has)) yield* copy(table)
      // Before any process can claim them, and before the file is no longer read.
      const stayPinned = yield* Pins.staying({ file, target, kept: state.kept })
      const served = yield* Target.release(target, fingerprint, state.counts)
      if (yield* file.hasChanged) return yield* new SqliteError.FileChanged({ file: file.path })
      return { served, stayPinned }
    })
  )
  yield* Target.analyze(target)
  yield* reportRows(examined.rows)
  return yield* report({ ...state, kept: [...state.kept] }, { outcome: "imported", ...pinned })
})

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** Most rows of one statement: what is in memory at a time. */
const chunkRows = 2000
const chunkBytes = 4 * 1024 * 1024

const check = ({ batch, onConflict, serve }: Options) => {
  const invalid = (field: string, problem: string) => Effect.fail(new SqliteError.InvalidInput({ field, problem }))
  if (batch !== undefined && !(Number.isInteger(batch) && batch >= 1 && batch <= 10_000)) {
    return invalid("batch", "it must be a whole number from 1 to 10,000")
  }
  if (onConflict !== undefined && !["refuse", "keep", "replace"].includes(onConflict)) {
    return invalid("onConflict", `it must be "refuse", "keep" or "replace"`)
  }
  return serve?.some((name) => name === "") === true ? invalid("serve", "a name is empty") : Effect.void
}

/** The first batches were written with the options of the call that began. */
const refuseOtherOptions = (mine: Target.Import, given: Pick<Target.Import, "onConflict" | "served">) => {
  const field = mine.onConflict !== given.onConflict
    ? "onConflict"
    : mine.served.join("\0") === given.served.join("\0")
    ? undefined
    : "serve"
  if (field === undefined) return Effect.void
  const began = field === "serve" ? `[${mine.served.join(", ")}]` : mine.onConflict
  return Effect.fail(
    new SqliteError.InvalidInput({ field, problem: `this import began with ${began}; continue it with that` })
  )
}

const refuseTaken = Effect.fnUntraced(function*(
  target: Target.Target,
  file: SqliteFile.SqliteFile,
  has: FileLayout.Has,
  copied: string | undefined
) {
  const found: Array<string> = []
  let count = 0
  for (let after = copied;;) {
    const ids = yield* Batches.idsAfter(file, has, after, 5000)
    if (ids.length === 0) break
    after = ids.at(-1)
    const taken = yield* Target.taken(target, ids)
    count += taken.length
    found.push(...taken.slice(0, 20 - found.length))
  }
  if (count > 0) return yield* idsTaken(target, found, count)
})

const idsTaken = ({ schema }: Target.Target, instanceIds: ReadonlyArray<string>, count: number) =>
  Effect.fail(new SqliteError.IdsTaken({ schema, instanceIds: instanceIds.slice(0, 20), count }))
