/**
 * Builds what is packed, into `dist` or the folder that is given: JavaScript without comments, declarations with them,
 * and no source maps. Sources and maps would be more than half of the package; the docstrings are in the declarations.
 */
import { spawn } from "node:child_process"
import { rmSync } from "node:fs"

const [folder = "dist"] = process.argv.slice(2)
rmSync(folder, { recursive: true, force: true })
const shared = ["--composite", "--incremental", "--declarationMap", "--sourceMap"].flatMap((
  option
) => [option, "false"])
const codes = await Promise.all(
  [["--emitDeclarationOnly"], ["--declaration", "false", "--removeComments"]].map((options) =>
    new Promise((resolve) =>
      spawn(
        process.execPath,
        ["node_modules/typescript/bin/tsc", "-p", "src", "--outDir", folder, ...shared, ...options],
        { stdio: "inherit" }
      ).on("close", resolve)
    )
  )
)
process.exitCode = codes.find((code) => code !== 0) ?? 0
