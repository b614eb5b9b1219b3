import { assert, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

const root = new URL("../../", import.meta.url)

it("vitest without npm reads .env, as the npm scripts do; what the environment sets wins", () => {
  const folder = mkdtempSync(join(tmpdir(), "duroxide-prisma-env-"))
  try {
    writeFileSync(join(folder, ".env"), "FROM_FILE=file\nFROM_BOTH=file\n")
    const program = `import { loadConfigFromFile } from ${JSON.stringify(import.meta.resolve("vite"))}
      await loadConfigFromFile(
        { command: "serve", mode: "test" },
        ${JSON.stringify(fileURLToPath(new URL("vitest.config.ts", root)))}
      )
      console.log(process.env.FROM_FILE, process.env.FROM_BOTH)`
    const printed = execFileSync(process.execPath, ["--input-type=module", "--eval", program], {
      cwd: folder,
      encoding: "utf8",
      env: { ...process.env, FROM_BOTH: "environment" }
    })
    assert.strictEqual(printed, "file environment\n")
  } finally {
    rmSync(folder, { recursive: true })
  }
})
