/**
 * What the images of the examples contain: no secrets of the machine that builds them.
 */
import { assert, it } from "@effect/vitest"
import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as DockerIgnore from "../utils/dockerIgnore.ts"
import * as Docs from "../utils/docs.ts"

const root = fileURLToPath(new URL("../../", import.meta.url))

const dockerfiles = ["examples", "docs"]
  .flatMap((folder) => readdirSync(join(root, folder), { recursive: true }).map((path) => join(folder, String(path))))
  .filter((path) => path.endsWith("Dockerfile"))

it("each Dockerfile leaves secrets, and what is built or installed on the machine, out of its image", () => {
  assert.sameMembers(dockerfiles, ["examples/deployment/Dockerfile", "examples/lite/Dockerfile"])
  for (const file of dockerfiles) {
    assert.isTrue(existsSync(join(root, `${file}.dockerignore`)), `${file} has an ignore file`)
    const isLeftOut = DockerIgnore.reader(Docs.read(`${file}.dockerignore`))
    for (
      const path of [
        ".env",
        ".env.production",
        "examples/lite/.env",
        ".git/config",
        ".duroxide/postgres/password",
        "node_modules/pg/package.json",
        "scripts/bench/peers/node_modules/pg/package.json",
        "dist/index.js"
      ]
    ) assert.isTrue(isLeftOut(path), `${file} leaves ${path} out`)
    for (const path of ["package.json", "package-lock.json", "src/index.ts", "examples/lite/services/main.ts"]) {
      assert.isFalse(isLeftOut(path), `${file} copies ${path}`)
    }
  }
})

it("patterns of an ignore file are read as Docker reads them", () => {
  const isLeftOut = DockerIgnore.reader("# a comment\n.env\n**/*.key\nbuild/\nlogs/**\n")
  const paths = [".env", "a/.env", ".envelope", "tls.key", "a/b/tls.key", "build/a", "a/build/b", "logs/a/b"]
  assert.deepStrictEqual(paths.filter(isLeftOut), [".env", "tls.key", "a/b/tls.key", "build/a", "logs/a/b"])
})
