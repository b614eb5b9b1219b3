/**
 * Completions as `effect/cli` prints them, with the flags that every command has, which it leaves out.
 */
import * as Command from "effect/cli/Command"
import * as Completions from "effect/cli/Completions"
import * as GlobalFlag from "effect/cli/GlobalFlag"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Settings from "./settings.ts"

/** Replaces the completions of `effect/cli`. */
export const flag: typeof GlobalFlag.Completions = GlobalFlag.Action({
  flag: GlobalFlag.Completions.flag,
  run: (shell, { command }) =>
    Option.match(shell, {
      onNone: () => Effect.void,
      onSome: (shell) =>
        Console.log(Completions.generate(command.name, shell, withGlobalFlags(Completions.fromCommand(command))))
    })
})

// internal

const globals = Completions.fromCommand(
  Command.make(
    "globals",
    Object.fromEntries(Settings.flags.map(({ flag }, i) => [i, flag]))
  )
).flags

const withGlobalFlags = (command: Completions.CommandDescriptor): Completions.CommandDescriptor => ({
  ...command,
  flags: [...command.flags, ...globals],
  subcommands: command.subcommands.map(withGlobalFlags)
})
