// Makes the built package in a folder small and quick to load: `node scripts/bundle.mjs [folder]`. `prepack` runs it.
//
// Node takes longer to load most modules than to run them. So modules become chunks: one for what six entry points or
// more share, and one for each set of fewer that share modules, which keeps what an entry point does not need out of
// it. Whatever a module imports is shared by as many, so chunks never import each other in a circle. Comments stand in
// the declarations only. Maps are removed, and declarations that no entry point reaches.

import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { dirname, isAbsolute, join, resolve } from "node:path"
import { rolldown } from "rolldown"

const folder = resolve(process.argv[2] ?? ".")
const dist = join(folder, "dist")
const { bin, exports } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"))
const entryPoints = Object.values(exports).filter(({ types }) => types !== undefined)

const kept = new Set([...await bundle(), ...declarations()])
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  const file = join(entry.parentPath, entry.name)
  if (entry.isFile() && !kept.has(file)) rmSync(file)
}

/** Writes the chunks; returns their paths. */
async function bundle() {
  const scripts = [...entryPoints.map((entryPoint) => entryPoint.default), ...Object.values(bin)]
  const bundle = await rolldown({
    cwd: dist, // a comment before each module names its file, from here
    input: Object.fromEntries(scripts.map((path) => [path.replace(/^\.\/dist\/|\.js$/g, ""), join(folder, path)])),
    external: (name) => !name.startsWith(".") && !isAbsolute(name),
    platform: "neutral"
  })
  const { output } = await bundle.write({
    dir: dist,
    chunkFileNames: "chunks/[name].js",
    codeSplitting: { groups: [{ name: "common", minShareCount: 6 }] },
    comments: { jsdoc: false }
  })
  return output.map(({ fileName }) => join(dist, fileName))
}

/** Keeps the declarations that users can reach, without the comment that names a map; returns their paths. */
function declarations() {
  const reached = new Set()
  const visit = (file) => {
    if (reached.has(file) || !existsSync(file)) return
    reached.add(file)
    const text = readFileSync(file, "utf8").replace(/\/\/# sourceMappingURL=.*\n?$/, "")
    writeFileSync(file, text)
    for (const [, name] of text.matchAll(/(?:from |import\()["'](\.[^"']+)["']/g)) {
      visit(join(dirname(file), name.replace(/\.[jt]s$/, ".d.ts")))
    }
  }
  for (const { types } of entryPoints) visit(join(folder, types))
  return reached
}
