/**
 * Reads stored functions: from the folders of `prisma/functions`, where each is edited, and from `prisma/migrations`,
 * where each was last defined. Both have the same shape, so they are compared as two maps.
 *
 * A function file has one `CREATE OR REPLACE FUNCTION dx_…` with the name of the file, after a comment that describes
 * it. The settings that most of them share are written here, once.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import path from "node:path"
import { root } from "./migrationsModule.mjs"

export const functionsDirectory = path.join(root, "prisma/functions")

/**
 * Sent before functions are created, as these keep the current search path. Without pg_temp at its end, a temporary
 * table of the caller would hide ours. For the transaction only: later statements of the session keep its own path.
 */
export const fixedSearchPath = "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);"

/**
 * What the line `-- settings of the hot path` in a function file stands for. A plan must not depend on statistics,
 * which a queue outdates within seconds, nor on the arguments of a call: one generic plan, along indexes, is right for
 * every size of the tables. Compiling (`jit`) costs more than such a statement. All seven take 0.8 microseconds per
 * call.
 */
const hotPathSettings = [
  "search_path FROM CURRENT",
  "jit = off",
  "plan_cache_mode = force_generic_plan",
  "enable_seqscan = off",
  "enable_bitmapscan = off",
  "enable_hashjoin = off",
  "enable_mergejoin = off"
].map((setting) => `SET ${setting}`).join("\n")

const statement =
  /^CREATE OR REPLACE FUNCTION (?<created>\w+)\s*\([\s\S]*?^AS (?<quote>\$\w*\$)[\s\S]*?\k<quote>(?=\s*;?\s*$)|^DROP FUNCTION IF EXISTS (?<dropped>\w+)(?=;)/gm

/**
 * The parts whose change requires dropping a function first: arguments, result and attributes, without
 * comments and layout.
 */
export const signature = (definition) =>
  definition.slice(0, definition.search(/^AS \$/m)).replace(/--.*$/gm, "").replace(/\s+/g, " ").trim()

/** In whichever folder they are. */
const byName = (one, other) => path.basename(one) < path.basename(other) ? -1 : 1

/**
 * The functions of `prisma/functions`: name to `{ name, text, definition }`, in an order in which they can be created.
 * Throws on a file that breaks the rules.
 */
export function readFunctionFiles(directory = functionsDirectory) {
  const functions = new Map()
  for (
    const file of existsSync(directory)
      ? readdirSync(directory, { encoding: "utf8", recursive: true }).filter((name) => name.endsWith(".sql")).sort(
        byName
      )
      : []
  ) {
    const name = path.basename(file, ".sql")
    const written = readFileSync(path.join(directory, file), "utf8")
    // A part of other functions: only these call it, under their settings, which it does not set again for each call.
    const inherits = /^-- settings of the caller$/m.test(written)
    const text = written.trim().replace(/;$/, "")
      .replace(/^-- settings of the hot path$/m, hotPathSettings)
    const found = [...text.matchAll(statement)]
    const problem = !/^dx_[a-z0-9_]+$/.test(name)
      ? "must be named dx_<lower case>.sql: the prefix keeps clear of functions of other programs in the schema"
      : found.length !== 1 || found[0].groups.created !== name
      ? `must hold one statement, CREATE OR REPLACE FUNCTION ${name}(…) … AS $$…$$, with AS at the start of its line`
      : functions.has(name)
      ? "has the name of a file in another folder"
      : found[0].index + found[0][0].length !== text.length
      ? "must end with the function's body"
      // PostgreSQL can inline a function that reads no table; settings would prevent that.
      : !inherits && !/\bSET search_path FROM CURRENT\b/.test(signature(found[0][0])) &&
          !/\bLANGUAGE sql IMMUTABLE$/.test(signature(found[0][0]))
      ? "must say SET search_path FROM CURRENT before AS: otherwise it works only under the caller's search_path"
      : undefined
    if (problem !== undefined) throw new Error(`prisma/functions/${file} ${problem}`)
    functions.set(name, { name, text, definition: found[0][0] })
  }
  return calledFirst(functions)
}

/** When PostgreSQL creates a body in SQL it looks up the functions it calls, so these come first. */
function calledFirst(functions) {
  const ordered = new Map()
  const visit = (one, callers) => {
    if (ordered.has(one.name) || callers.includes(one.name)) return
    for (const [name] of one.definition.matchAll(/\bdx_[a-z0-9_]+\b/g)) {
      if (functions.has(name)) visit(functions.get(name), [...callers, one.name])
    }
    ordered.set(one.name, one)
  }
  for (const one of functions.values()) visit(one, [])
  return ordered
}

/** The functions defined after the given migrations: name to definition. */
export function definedBy(migrations) {
  const functions = new Map()
  for (const { sql } of migrations) {
    for (const { 0: definition, groups } of sql.matchAll(statement)) {
      if (groups.dropped !== undefined) functions.delete(groups.dropped)
      else functions.set(groups.created, definition)
    }
  }
  return functions
}

/** Where files and migrations differ: `created`, `changed`, `replaced` (another signature) and `dropped`. */
export function compareFunctions(files, defined) {
  const names = [...files.keys()]
  const differing = names.filter((name) => defined.has(name) && defined.get(name) !== files.get(name).definition)
  const sameSignature = (name) => signature(files.get(name).definition) === signature(defined.get(name))
  return {
    created: names.filter((name) => !defined.has(name)),
    changed: differing.filter(sameSignature),
    replaced: differing.filter((name) => !sameSignature(name)),
    dropped: [...defined.keys()].filter((name) => !files.has(name))
  }
}
