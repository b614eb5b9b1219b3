/**
 * A role of the test server whose password can be changed while it is in use.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { randomUUID } from "node:crypto"
import * as pg from "pg"
import * as PgServer from "./PgServer.ts"

export interface LoginRole {
  readonly name: string
  readonly setPassword: (password: string) => Promise<void>
  /** The server refuses its logins, and ends its sessions, until it is admitted again. */
  readonly refuse: () => Promise<void>
  readonly admit: () => Promise<void>
  /** The URL with the role as its user, by default without a password. */
  readonly at: (url: string, password?: string) => string
}

/** A superuser, dropped with the scope. Open it before the database in which it creates something. */
export const loginRole = (password: string): Effect.Effect<LoginRole, never, Scope.Scope> =>
  Effect.gen(function*() {
    const name = `login_${randomUUID().replaceAll("-", "_")}`
    const admin = yield* PgServer.connect(PgServer.server().url)
    const setPassword = async (password: string) => {
      await admin.query(`ALTER ROLE ${name} PASSWORD ${pg.escapeLiteral(password)}`)
    }
    yield* Effect.acquireRelease(
      Effect.promise(() => admin.query(`CREATE ROLE ${name} LOGIN SUPERUSER PASSWORD ${pg.escapeLiteral(password)}`)),
      () => Effect.promise(() => admin.query(`DROP ROLE ${name}`))
    )
    return {
      name,
      setPassword,
      refuse: async () => {
        await admin.query(`ALTER ROLE ${name} NOLOGIN`)
        await admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", [name])
      },
      admit: async () => {
        await admin.query(`ALTER ROLE ${name} LOGIN`)
      },
      at: (url, password = "") => {
        const own = new URL(url)
        own.username = name
        own.password = password
        return own.toString()
      }
    }
  })
