/**
 * SQL files of the package that operators may also run by hand. They are plain SQL with the names `"duroxide"` for the
 * schema and `"duroxide_…"` for roles, which are replaced here.
 */
import * as Effect from "effect/Effect"
import { readFile } from "node:fs/promises"
import { createRequire } from "node:module"
import { dirname, join } from "node:path"
import * as ProviderError from "../../provider/ProviderError.ts"

/** The text of `prisma/<file>` with other names. `names` has the name in the file first. */
export const read = (
  file: string,
  names: ReadonlyArray<readonly [name: string, replacement: string]>
): Effect.Effect<string, ProviderError.ConfigurationInvalid> =>
  Effect.gen(function*() {
    for (const [, replacement] of names) {
      // In the files, names stand in quotes, and some of these in texts.
      if (replacement === "" || /['"$\0]/.test(replacement) || new TextEncoder().encode(replacement).length > 63) {
        return yield* invalid(
          `the name ${
            JSON.stringify(replacement)
          } cannot be put into prisma/${file}: a name has 1 to 63 bytes here, and ` +
            "no quotes and no $"
        )
      }
    }
    const text = yield* Effect.tryPromise({
      try: () => readFile(join(packageFolder(), "prisma", file), "utf8"),
      catch: () =>
        new ProviderError.ConfigurationInvalid({
          problem: `prisma/${file} is not beside this code, as after bundling: call it from the installed package`
        })
    })
    // At once, because a replacement may be a name of the file.
    const replacements = new Map(names.map(([name, replacement]) => [`"${name}"`, `"${replacement}"`]))
    return text.replace(/"\w+"/g, (name) => replacements.get(name) ?? name)
  })

// internal

/** Found by name: where this module is in the package depends on how the package was built. */
const packageFolder = () => dirname(createRequire(import.meta.url).resolve("duroxide-prisma/package.json"))

const invalid = (problem: string) => Effect.fail(new ProviderError.ConfigurationInvalid({ problem }))
