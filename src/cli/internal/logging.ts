/**
 * Log lines of the library, on standard error: for people without times, as these lines stand beside a command just
 * typed.
 */
import type * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import type { Output } from "./Output.ts"

export const layer = ({ errorStyle: style, noteUnsafe }: Output["Service"]): Layer.Layer<never> =>
  Logger.layer([
    Logger.map(Logger.formatStructured, ({ annotations, cause, level, message, timestamp }) => {
      const { package: _, ...rest } = annotations
      const texts = [message].flat().map((part) => typeof part === "string" ? part : JSON.stringify(part))
      const pairs = Object.entries(rest).map(([name, value]) =>
        ` ${name}=${typeof value === "string" ? value : JSON.stringify(value)}`
      )
      noteUnsafe(
        `${level === "INFO" ? style.dim("info") : style.yellow(level.toLowerCase())}: ${texts.join(" ")}${
          pairs.join("")
        }`,
        {
          log: { level, message: texts.join(" "), timestamp, annotations: rest, ...(cause !== undefined && { cause }) }
        }
      )
    })
  ])
