/**
 * Roles with the least rights: one that migrates, one for workers, one for clients, one that only reads.
 *
 * What each may do stands in `prisma/roles/*.sql` of the package, plain SQL that can also be run by hand. Roles are
 * created without a login, to be granted to the logins of an application; an existing role keeps its login.
 *
 * @since 0.2.0
 */
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import { ProviderError, type Reason } from "../provider/ProviderError.ts"
import * as ShippedSql from "./internal/shippedSql.ts"
import * as Session from "./shared/directSession.ts"

/**
 * The roles, each with a file of its own.
 *
 * @category models
 * @since 0.2.0
 */
export type Role = "migrator" | "worker" | "client" | "reader"

/**
 * Which roles get their rights, and where.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options {
  /**
   * A login that may grant: the owner of the tables, or an administrator. It must be allowed to create roles that do
   * not exist yet.
   */
  readonly url: string | Redacted.Redacted<string>
  /** Without quotes in it. Defaults to the URL's `schema` parameter, then to `public`. */
  readonly schema?: string | undefined
  /** The names of the roles to apply, such as `{ worker: "orders_worker" }`. The others are left as they are. */
  readonly roles: { readonly [R in Role]?: string | undefined }
}

/**
 * Creates the given roles where they are missing, and gives each exactly the rights of its file.
 *
 * **When to use**
 *
 * Use `migrator` before the first migration, and the others after each migration, before processes of the new release
 * start: a new table is granted to no role.
 *
 * **Details**
 *
 * Rights on our tables that the file does not name are taken away. Each file is one transaction; running processes keep
 * working. Fails with `ProviderError`, operation `applyRoles`: `PermissionDenied`, which names a missing role that this
 * login may not create; `SchemaMismatch` before the first migration; `ConfigurationInvalid` for a name with quotes; or
 * a reason of the connection.
 *
 * @category operations
 * @since 0.2.0
 */
export const apply = Effect.fn("Roles.apply")(
  function*(options: Options) {
    const { run, schema } = yield* Session.connect(options)
    for (const role of order) {
      const name = options.roles[role]
      if (name === undefined) continue
      const names = [["duroxide", schema], [`duroxide_${role}`, name]] as const
      const sql = yield* ShippedSql.read(`roles/${role}.sql`, names)
      yield* Effect.catchIf(
        run(sql),
        ({ _tag }) => _tag === "PermissionDenied",
        (reason) => explained(run, reason, name)
      )
    }
  },
  Effect.scoped,
  Effect.mapError((reason) => new ProviderError({ operation: "applyRoles", reason }))
)

// internal

const order: ReadonlyArray<Role> = ["migrator", "worker", "client", "reader"]

/** The server does not name the role that it refuses to create. */
const explained = Effect.fnUntraced(function*(run: Session.Session["run"], reason: Reason, name: string) {
  const [role] = yield* run("SELECT FROM pg_roles WHERE rolname = $1", [name])
  return yield* role !== undefined ? Effect.fail(reason) : Session.withAdvice(
    Effect.fail(reason),
    `Role "${name}" does not exist: an administrator creates it first, with CREATE ROLE "${name}"`
  )
})
