import type * as MigrationError from "../MigrationError.ts"

/** The server lacks what it was asked for: it says so (0A000), or does not know the function (42883). */
export const isUnsupported = (reason: MigrationError.Reason): boolean =>
  "sqlState" in reason && (reason.sqlState === "0A000" || reason.sqlState === "42883")
