/** The dashboard beside the demo, in a process of its own. */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { createRequire } from "node:module"
import * as path from "node:path"

/** Serves it until the scope is closed; returns the link. */
export const open = Effect.fnUntraced(function*(
  { schema, url }: { readonly schema: string; readonly url: Redacted.Redacted<string> }
) {
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const manifest = createRequire(import.meta.url).resolve("duroxide-prisma/package.json")
      return spawn(process.execPath, [
        path.join(path.dirname(manifest), "dist/cli/main.js"),
        "ui",
        "--schema",
        schema,
        "--port",
        "0",
        "--json"
      ], { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, DATABASE_URL: Redacted.value(url) } })
    }),
    (child) => Effect.promise(async () => child.kill("SIGTERM") && await once(child, "exit"))
  )
  const [answer] = yield* Effect.promise(() =>
    Promise.race([
      once(child.stdout, "data") as Promise<[Buffer]>,
      once(child, "exit").then(([code]) => Promise.reject(new Error(`ui has ended with exit code ${code}`)))
    ])
  )
  return (JSON.parse(String(answer)) as { readonly url: string }).url
})
