/**
 * scripts/containers.sh with a stand-in for docker, which writes down its arguments. The engine itself runs at night,
 * in CI.
 */
import { assert, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { parse } from "yaml"
import * as Docs from "../utils/docs.ts"

const root = fileURLToPath(new URL("../../", import.meta.url))

/** The commands it sent to docker, when `client` ends with this exit code. */
const lite = (exitCode: number) => {
  const bin = mkdtempSync(join(tmpdir(), "containers-"))
  try {
    writeFileSync(
      join(bin, "docker"),
      `#!/bin/sh\nprintf '%s\\n' "docker $*" >> "$CALLS"\ncase "$*" in *" wait "*) exit ${exitCode};; esac\n`
    )
    chmodSync(join(bin, "docker"), 0o755)
    const calls = join(bin, "calls")
    const { status, stderr } = spawnSync("bash", ["scripts/containers.sh", "lite"], {
      cwd: root,
      encoding: "utf8",
      env: { PATH: `${bin}:${process.env["PATH"]}`, CALLS: calls }
    })
    return { status, stderr, calls: readFileSync(calls, "utf8").trim().split("\n") }
  } finally {
    rmSync(bin, { recursive: true })
  }
}

/** The commands of the page. */
const [documented] = Docs.blocks(Docs.read("examples/lite/README.md"), "sh").map(({ code }) =>
  code.split("\n").map((line) => line.replace(/ +#.*/, ""))
).filter(([first]) => first!.startsWith("docker"))

it("runs Lite by the commands of its README, none of which ends with another service than client", () => {
  const { calls, status, stderr } = lite(0)
  assert.strictEqual(status, 0, stderr)
  assert.deepStrictEqual(calls, documented)
  // `setup` ends by itself, and that would stop all services.
  for (const line of [...calls, Docs.read("examples/lite/compose.yaml")]) {
    assert.notMatch(line, /--exit-code-from|--abort-on-container-exit/)
  }
})

it("fails as the client does, after it has shown all logs and stopped everything", () => {
  const { calls, status } = lite(3)
  assert.strictEqual(status, 3)
  assert.deepStrictEqual(calls.slice(2).map((call) => call.split("compose.yaml ")[1]), ["logs", "down --volumes"])
})

it("CI runs it, and the tests on a server of testcontainers, every night", () => {
  const { jobs, on } = parse(Docs.read(".github/workflows/ci.yml"))
  assert.lengthOf(on.schedule, 1)
  const { env, if: condition, steps } = jobs.containers
  assert.include(condition, "github.event_name == 'schedule'")
  const commands = steps.map(({ run = "" }: { readonly run?: string }) => run).join("\n")
  assert.include(commands, "npm run containers")
  assert.include(commands, "PostgreSQL from container ")
  assert.isUndefined(env?.DATABASE_URL, "it would take the place of the container")
  assert.isUndefined(jobs.containers.services)
})
