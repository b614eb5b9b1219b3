// Checks which modules may import which. The folders of `src` are its rooms; `rooms.json` says, lowest first, which
// others each may import, and which packages. docs/architecture.md shows it as a map. Each edge of it is used.
//
// No driver imports the runtime, and only the rooms of operators and sqlite import prisma, so that a second driver or
// runtime needs no other changes. A room imports another by its modules and its `shared/`, never by its `internal/`, so
// that internal modules can change freely.
//
// `node scripts/imports.mjs [directory]` prints each breach and exits with 1 when there is one.

import { existsSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join, relative, resolve } from "node:path/posix"

/** The rooms and packages that each room may import besides itself. Files beside the rooms are `author`. */
const rooms = JSON.parse(readFileSync(new URL("rooms.json", import.meta.url), "utf8"))

/** What applications may import, as in `exports` of package.json. */
const entryPoints = new Set([
  "src/index.ts",
  "src/agents/index.ts",
  "src/dashboard/index.ts",
  "src/prisma/index.ts",
  "src/provider/index.ts",
  "src/observability/index.ts",
  "src/outbox/index.ts",
  "src/queue/index.ts",
  "src/queue/sqs.ts",
  "src/recipes/completions.ts",
  "src/recipes/datasets.ts",
  "src/recipes/deliveries.ts",
  "src/recipes/triggers.ts",
  "src/schedules/index.ts",
  "src/server/index.ts",
  "src/sqlite/index.ts",
  "src/tasks/index.ts",
  "src/testing/index.ts",
  "src/testing/provider.ts",
  "src/testing/queue.ts",
  "src/testing/schedules.ts",
  "src/testing/tasks.ts"
])

/** Private folders: an entry point exports none of their modules. */
const isPrivate = (path) => /\/(internal|shared)\//.test(path) || /^src\/(replay|runtime|waking\/[a-z])/.test(path)

/** Folders beside `src`, and whether they may import more than the package exports. */
const neighbours = [
  { folder: "examples", mayReachSources: false }, // they read as a user would write them
  { folder: "scripts", mayReachSources: true },
  { folder: "test", mayReachSources: true }
]

const skipped = new Set(["src/prisma/generated"])

/**
 * Statements stand at the start of a line, so examples inside comments (` * import …`) are not taken for code.
 */
const statement =
  /^(?:import\s+(?:type\s+)?(?:[\w$*{},\s]+?\sfrom\s+)?|export\s+(?:type\s+)?(?:\*(?:\s+as\s+\w+)?|\{[^}]*\})\s+from\s+)"([^"]+)"/gm
const dynamic = /^(?!\s*(?:\*|\/\/)).*\bimport\("([^"]+)"\)/gm

const root = resolve(process.argv[2] ?? ".")
const breaches = [...checkSources(), ...neighbours.flatMap(checkNeighbour)]
for (const breach of breaches) console.error(breach)
console.log(breaches.length === 0 ? "Imports: every arrow points the right way." : `Imports: ${breaches.length} wrong.`)
process.exitCode = breaches.length === 0 ? 0 : 1

// -----------------------------------------------------------------------------
// checks
// -----------------------------------------------------------------------------

function checkSources() {
  const breaches = []
  const graph = new Map()
  const used = new Set()
  for (const file of listFiles("src")) {
    const room = roomOf(file)
    if (room === undefined) {
      breaches.push(`${file}: stands in no room; give it one in scripts/rooms.json`)
      continue
    }
    if (entryPoints.has(file)) breaches.push(...exportedInternals(file))
    const imports = importsOf(file)
    graph.set(file, imports.flatMap(({ target }) => target ?? []))
    for (const one of imports) {
      used.add(`${room} ${one.target === undefined ? ownerOf(one.name) : roomOf(one.target)}`)
      const reason = one.target === undefined ? wrongPackage(room, one.name) : wrongFile(file, room, one.target)
      if (reason !== undefined) breaches.push(`${file}:${one.line}: imports ${one.target ?? one.name}: ${reason}`)
    }
  }
  return [...breaches, ...findCycles(graph), ...unusedEdges(used)]
}

/** `used`: rooms, each with a room or a package that it imports. */
function unusedEdges(used) {
  return Object.entries(rooms).flatMap(([room, { packages, rooms }]) =>
    [...rooms, ...packages].filter((other) => !used.has(`${room} ${other}`)).map((other) =>
      `scripts/rooms.json: ${room} may import ${other}, and does not: remove it`
    )
  )
}

function wrongPackage(room, name) {
  if (name === "effect") return "import the module instead, as `effect/Effect`"
  if (isOwnName(name)) return "inside src, import by relative path"
  const owner = ownerOf(name)
  if (!rooms[room].packages.includes(owner)) return `${room} does not use the package ${owner}`
}

function wrongFile(file, room, target) {
  if (!target.startsWith("src/")) return "src imports nothing outside itself"
  if (entryPoints.has(file) && isPrivate(target)) return "an entry point exports nothing internal"
  const other = roomOf(target) // a file without a room has its own message
  if (other !== undefined && other !== room && !rooms[room].rooms.includes(other)) {
    return `${room} does not import ${other}`
  }
  if (other !== room && target.startsWith(`src/${other}/internal/`)) {
    return `${target.split("/").slice(1, 3).join("/")} is ${other}'s own; import a module of ${other}, or its shared/`
  }
}

function checkNeighbour({ folder, mayReachSources }) {
  return listFiles(folder).flatMap((file) =>
    importsOf(file).flatMap(({ line, name, target }) => {
      const place = target ?? name
      const reason = /^(dist|build)\//.test(place)
        ? "import the source or the package, not what is built"
        : !mayReachSources && place.startsWith("src/")
        ? `${folder} use only what the package exports`
        : undefined
      return reason === undefined ? [] : [`${file}:${line}: imports ${place}: ${reason}`]
    })
  )
}

/** Depth first: reaching a file that is still open closes a cycle. Each cycle is reported once. Types count. */
function findCycles(graph) {
  const cycles = []
  const closed = new Set()
  const visit = (file, open) => {
    if (open.includes(file)) {
      cycles.push(`${file}: imports itself: ${[...open.slice(open.indexOf(file)), file].join(" -> ")}`)
    } else if (!closed.has(file)) {
      for (const target of graph.get(file) ?? []) visit(target, [...open, file])
      closed.add(file)
    }
  }
  for (const file of graph.keys()) visit(file, [])
  return cycles
}

// -----------------------------------------------------------------------------
// reading
// -----------------------------------------------------------------------------

/** Decided by the folder; undefined for a folder that is not a room. */
function roomOf(file) {
  const [, folder, more] = file.split("/")
  return more === undefined ? "author" : Object.hasOwn(rooms, folder) && folder !== "author" ? folder : undefined
}

function listFiles(folder) {
  if (!existsSync(join(root, folder))) return []
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory()) return skipped.has(path) ? [] : listFiles(path)
    return /\.(ts|mjs)$/.test(entry.name) ? [path] : []
  })
}

/** The imports of a file as written and, if relative, as paths from the root. */
function importsOf(file) {
  const text = readFileSync(join(root, file), "utf8")
  const found = (match) => ({
    name: match[1],
    target: match[1].startsWith(".") ? relative(root, resolve(root, dirname(file), match[1])) : undefined,
    line: text.slice(0, match.index).split("\n").length
  })
  return [...text.matchAll(statement), ...text.matchAll(dynamic)].map(found)
}

/** Names marked `@internal` in the modules an entry point exports whole. */
function exportedInternals(file) {
  return importsOf(file).flatMap(({ target }) => {
    if (target === undefined || !existsSync(join(root, target))) return []
    return exportedFiles(target).flatMap(internals)
  })

  function internals(target) {
    const text = readFileSync(join(root, target), "utf8")
    return [...text.matchAll(/@internal(?:(?!\*\/)[\s\S])*\*\/\nexport \w+ (\w+)/g)].map((match) =>
      `${target}: exports ${match[1]}, which is internal, through ${file}: move it to a folder that is private`
    )
  }
}

/** A module, and those that it exports again with all their names. */
function exportedFiles(file) {
  const text = readFileSync(join(root, file), "utf8")
  const again = [...text.matchAll(/^export (?:type )?\* from "([^"]+)"/gm)]
    .map(([, name]) => relative(root, resolve(root, dirname(file), name)))
    .filter((target) => existsSync(join(root, target)))
  return [file, ...again]
}

function isOwnName(name) {
  return packageOf(name) === "duroxide-prisma"
}

function ownerOf(name) {
  return name.startsWith("node:") ? "node" : packageOf(name)
}

function packageOf(name) {
  return name.split("/").slice(0, name.startsWith("@") ? 2 : 1).join("/")
}
