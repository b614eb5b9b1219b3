/**
 * The files of the page: read once, served from memory. A path that is not the name of one of them leads nowhere, so
 * no other file can be reached.
 */
import * as Effect from "effect/Effect"
import { HttpRouter } from "effect/http/HttpRouter"
import { HttpServerRequest } from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import { createHash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { dirname, extname, join } from "node:path"
import { gzipSync } from "node:zlib"
import { InvalidInput, ProviderError } from "../../provider/ProviderError.ts"
import * as Headers from "./headers.ts"

interface File {
  readonly type: string
  readonly etag: string
  readonly plain: Uint8Array
  readonly compressed: Uint8Array
}

/** The page as it is installed. */
export interface Page {
  readonly packageVersion: string
  /** By their paths. */
  readonly files: ReadonlyMap<string, File>
}

export const read: Effect.Effect<Page, ProviderError> = Effect.try({
  try: () => {
    const from = join(dirname(manifest()), "ui", "dist")
    const names = readdirSync(from, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && types[extname(entry.name)] !== undefined)
      .map((entry) => join(entry.parentPath, entry.name))
    const files = new Map(names.map((name) => {
      const plain = readFileSync(name)
      return [name.slice(from.length + 1).replaceAll("\\", "/"), {
        type: types[extname(name)]!,
        etag: `"${createHash("sha256").update(plain).digest("base64url").slice(0, 22)}"`,
        plain,
        compressed: gzipSync(plain, { level: 9 })
      }] as const
    }))
    if (!files.has("index.html")) throw new Error("no index.html")
    const { version } = JSON.parse(readFileSync(manifest(), "utf8")) as { readonly version: string }
    return { packageVersion: version, files }
  },
  catch: () =>
    new ProviderError({
      operation: "open",
      reason: new InvalidInput({
        field: "ui/dist",
        problem:
          "the files of the dashboard, ui/dist, are not beside this code: serve it from the installed package, not " +
          "from a bundle; in a clone, run npm run ui:build"
      })
    })
})

/** Adds `/` and `/assets/…`. The path alone leads to `/`, as the page names its files relative to that. */
export const serve = Effect.fnUntraced(function*({ files }: Page, path: string) {
  const root = yield* HttpRouter
  const router = path === "" ? root : root.prefixed(path)
  const index = files.get("index.html")!
  yield* router.add("GET", "/", path === "" ? answer(index, false) : withSlash(path, answer(index, false)))
  for (const [name, file] of files) yield* router.add("GET", `/${name}`, answer(file, name.startsWith("assets/")))
})

// internal

const types: { readonly [extension: string]: string } = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml"
}

/** Found by name: where this module is in the package depends on how the package was built. */
const manifest = () => createRequire(import.meta.url).resolve("duroxide-prisma/package.json")

/** Assets have a hash in their names, so they never change. */
const answer = (file: File, isAsset: boolean) =>
  Effect.map(HttpServerRequest, ({ headers }) => {
    const shared = {
      ...Headers.ofFiles,
      etag: file.etag,
      vary: "accept-encoding",
      "cache-control": isAsset ? "public, max-age=31536000, immutable" : "no-cache"
    }
    if (headers["if-none-match"] === file.etag) return HttpServerResponse.empty({ status: 304, headers: shared })
    return /\bgzip\b/.test(headers["accept-encoding"] ?? "")
      ? HttpServerResponse.uint8Array(file.compressed, {
        contentType: file.type,
        headers: { ...shared, "content-encoding": "gzip" }
      })
      : HttpServerResponse.uint8Array(file.plain, { contentType: file.type, headers: shared })
  })

/** The router takes the path with and without a slash at its end. */
const withSlash = (path: string, page: ReturnType<typeof answer>) =>
  Effect.flatMap(HttpServerRequest, ({ originalUrl }) =>
    originalUrl.replace(/[?#].*$/s, "").endsWith("/")
      ? page
      : Effect.succeed(HttpServerResponse.redirect(`${path.slice(path.lastIndexOf("/") + 1)}/`, { status: 308 })))
