import * as Console from "effect/Console"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"

/** A console that keeps the lines printed on it, and no logs. */
export const make = () => {
  const lines: Array<string> = []
  const log = (...args: ReadonlyArray<unknown>) => void lines.push(args.map(String).join(" ").trim())
  const console: Console.Console = { ...globalThis.console, log }
  return { lines, layer: Layer.merge(Layer.succeed(Console.Console, console), Logger.layer([])) }
}
