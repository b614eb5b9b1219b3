/**
 * Completions, as a shell uses them.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { execFileSync } from "node:child_process"
import { tmpdir } from "node:os"
import * as Cli from "./cli.ts"

/** What Bash offers for each line, whose last word may be a part of one. */
const offered = Effect.fnUntraced(function*(lines: ReadonlyArray<string>) {
  const { stdout: completions } = yield* Cli.run("--completions bash")
  const script = `${completions}
    while IFS= read -r line; do
      COMP_LINE="$line"; COMP_POINT=\${#line}
      IFS=' ' read -ra COMP_WORDS <<< "$line"
      [[ "$line" == *" " ]] && COMP_WORDS+=("")
      COMP_CWORD=$(( \${#COMP_WORDS[@]} - 1 )); COMPREPLY=()
      _duroxide_prisma duroxide-prisma "\${COMP_WORDS[COMP_CWORD]}"
      echo "\${COMPREPLY[*]}"
    done`
  const printed = execFileSync("bash", ["--norc", "-c", script], {
    encoding: "utf8",
    cwd: tmpdir(),
    input: lines.map((line) => `duroxide-prisma ${line}\n`).join("")
  })
  return printed.trimEnd().split("\n").map((line) => line.split(" "))
})

it.live("every command is offered, with all its flags", () =>
  Effect.gen(function*() {
    const { stdout } = yield* Cli.run("--help")
    const commands = [...stdout.slice(stdout.indexOf("SUBCOMMANDS")).matchAll(/^ {2}(\w+) {2}/gm)].map(([, name]) =>
      name!
    )
    assert.isAtLeast(commands.length, 10)
    const [roots, ...flags] = yield* offered(["", ...commands.map((command) => `${pathOf(command)} --`)])
    assert.deepStrictEqual(roots, commands)
    for (const [i, command] of commands.entries()) {
      const help = yield* Cli.run(`${pathOf(command)} --help`)
      const [flagsOf = ""] = help.stdout.split("EXAMPLES")
      const documented = [...flagsOf.matchAll(/^ {2}(--[\w-]+)/gm)].map(([, flag]) => flag!)
      assert.sameMembers(
        flags[i]!,
        documented.filter((flag) => !["--help", "--version", "--completions"].includes(flag)),
        command
      )
    }
  }))

it.live("choices are offered, and what follows the flags of every command", () =>
  Effect.gen(function*() {
    const statuses = ["running", "completed", "failed", "cancelled", "blocked", "paused"]
    assert.deepStrictEqual(
      yield* offered(["retry --status ", "list --status f", "--json --url x term", "import s", "queues d"]),
      [
        statuses,
        ["failed"],
        ["terminate"],
        ["sqlite"],
        ["dead"]
      ]
    )
  }))

// internal

const pathOf = (command: string) => ["import", "verify"].includes(command) ? `${command} sqlite` : command
