/**
 * Finds the test files which need this process alone: no PostgreSQL, no other process. Imports decide, so no list can
 * rot.
 *
 * Follows the imports of a test within `test/`. The product starts no process and knows no server on its own: a test
 * hands it the address, which `PgServer` alone has.
 */
import { readdirSync, readFileSync } from "node:fs"
import { dirname, join, relative } from "node:path"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("../../", import.meta.url))

/** A test that imports one of them, itself or through another file of `test/`, is not quick. */
const slow = [/^node:(child_process|cluster)$/, /^duroxide-prisma\/server$/, /\/src\/server\//, /\/PgServer\.ts$/]

/** Paths from the root of the repository. */
export const quickTests = (): ReadonlyArray<string> => {
  const known = new Map<string, boolean>()
  const isQuick = (file: string): boolean => {
    const before = known.get(file)
    if (before !== undefined) return before
    known.set(file, true) // while it is read, for imports in a circle
    const quick = importsOf(file).every((name) =>
      !slow.some((pattern) => pattern.test(name)) && (!isOurs(name) || isQuick(join(dirname(file), name)))
    )
    known.set(file, quick)
    return quick
  }
  return readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => join(root, "test", name))
    .filter(isQuick)
    .map((file) => relative(root, file))
    .sort()
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** Imports that load a module; an import of types loads nothing. */
const importsOf = (file: string) =>
  [
    ...readFileSync(file, "utf8").matchAll(
      /^(?:import|export) (?!type )(?:[^"]*? from )?"([^"]+)"|\bimport\("([^"]+)"\)/gm
    )
  ]
    .map((found) => (found[1] ?? found[2])!)

const isOurs = (name: string) => name.startsWith(".") && name.endsWith(".ts") && !name.includes("/src/")
