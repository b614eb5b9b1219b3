/**
 * Loggers that can be silenced.
 */
import * as Logger from "effect/Logger"

type Loggers = ReadonlySet<Logger.Logger<unknown, unknown>>

export const silentWhile = (loggers: Loggers, isSilent: () => boolean): Loggers =>
  new Set([...loggers].map((logger) => Logger.make((options) => isSilent() ? undefined : logger.log(options))))
