/**
 * Help as `effect/cli` prints it, in lines that fit a terminal.
 */
import * as CliOutput from "effect/cli/CliOutput"
import type { FlagDoc } from "effect/cli/HelpDoc"
import * as Option from "effect/Option"
import type { Output } from "./Output.ts"

export const formatter = ({ columns, hasColours }: Output["Service"]): CliOutput.Formatter => {
  const standard = CliOutput.defaultFormatter({ colors: hasColours })
  return {
    formatCliError: standard.formatCliError,
    formatError: standard.formatError,
    formatErrors: standard.formatErrors,
    formatVersion: standard.formatVersion,
    formatHelpDoc: (doc) =>
      standard
        .formatHelpDoc({ ...doc, ...(doc.globalFlags !== undefined && { globalFlags: doc.globalFlags.map(brief) }) })
        .split("\n")
        .flatMap((line) => wrapped(line, Math.min(columns, widest)))
        .join("\n")
  }
}

// internal

/** Longer lines are hard to read, wherever they are printed. */
const widest = 80

/** The list of shells would make the column of names wider than that of their descriptions. */
const brief = (flag: FlagDoc): FlagDoc =>
  flag.name === "completions"
    ? { ...flag, type: "<shell>", description: Option.some("Print completions for bash, zsh, fish or powershell") }
    : flag

/** Continued below the last column of the line. */
const wrapped = (line: string, width: number): ReadonlyArray<string> => {
  if (CliOutput.displayWidth(line) <= width) return [line]
  const [first = ""] = /^\s*(?:\S.*?\s{2,})?(?=\S)/.exec(line) ?? []
  const indent = " ".repeat(CliOutput.displayWidth(first))
  const lines = [first]
  let isEmpty = true
  for (const word of line.slice(first.length).split(" ")) {
    const last = lines.at(-1)!
    if (!isEmpty && CliOutput.displayWidth(`${last} ${word}`) > width) {
      lines.push(indent + word)
    } else {
      lines[lines.length - 1] = isEmpty ? last + word : `${last} ${word}`
    }
    isEmpty = false
  }
  return lines
}
