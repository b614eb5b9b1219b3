/**
 * What the login may do with the schema, compared with the roles that the package ships (`prisma/roles`).
 */
import * as Effect from "effect/Effect"
import { counted } from "../../../model/shared/quantities.ts"
import type * as ProviderError from "../../../provider/ProviderError.ts"
import { quoted } from "../connection.ts"
import * as ShippedSql from "../shippedSql.ts"
import type { Examined } from "./examined.ts"
import { advice, ok, problem } from "./finding.ts"
import type { Answer } from "./finding.ts"

export const examine = Effect.fnUntraced(function*({ schema, used: { one } }: Examined) {
  const held = yield* Effect.forEach(roles, (role) =>
    Effect.gen(function*() {
      const wanted = yield* readRights(role)
      const rows = yield* one.run(whichHeld, [schema, JSON.stringify(wanted)])
      return { role, rights: rows.map(({ held }, i) => ({ ...wanted[i]!, isHeld: held === true })) }
    }))
  const [login] = yield* one.run(
    `SELECT current_user::text AS name, r.rolsuper AS "isSuperuser",
       pg_has_role(c.relowner, 'USAGE') AS "isOwner",
       has_schema_privilege(c.relnamespace, 'CREATE') AS "mayCreate",
       (SELECT count(*)::integer FROM pg_proc AS p
        WHERE p.pronamespace = c.relnamespace AND starts_with(p.proname, 'dx_')
          AND NOT has_function_privilege(p.oid, 'EXECUTE')) AS refused
     FROM pg_roles AS r, pg_class AS c
     WHERE r.rolname = current_user AND c.relname = 'instances'
       AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)`,
    [schema]
  )
  return roleOf(held, login as unknown as Login, schema)
})

/** Before the first migration. */
export const mayMigrate = Effect.fnUntraced(function*({ direct: { one }, schema }: Examined) {
  const name = "role"
  const [row] = yield* one.run(
    `SELECT current_user::text AS name,
       COALESCE(
         has_schema_privilege((SELECT oid FROM pg_namespace WHERE nspname = $1), 'CREATE'),
         has_database_privilege(current_database(), 'CREATE')
       ) AS may`,
    [schema]
  )
  const found = `${String(row!["name"])} may ${row!["may"] === true ? "" : "not "}create tables in schema ${schema}`
  return row!["may"] === true
    ? ok(name, found)
    : advice(name, found, "Migrate with a role that may, then apply the other roles (docs/postgresql.md#roles)")
})

export const observing = Effect.fnUntraced(function*({ used: { one } }: Examined) {
  const name = "observing"
  const [row] = yield* one.run("SELECT pg_has_role('pg_read_all_stats', 'USAGE') AS may, current_user::text AS login")
  return row?.["may"] === true
    ? ok(name, "sees the sessions of all roles")
    : advice(
      name,
      "sees its own sessions alone: those of other roles, and what they keep, have no name here",
      `GRANT pg_read_all_stats TO ${quoted(String(row?.["login"]))}`
    )
})

// internal

/** Each may do all that the one after it may. */
const roles = ["worker", "client", "reader"] as const

interface Right {
  readonly kind: "schema" | "table" | "column" | "sequence"
  readonly object: string
  readonly privilege: string
  /** Null unless it is a right on a column. */
  readonly column: string | null
}

interface Held {
  readonly role: (typeof roles)[number]
  readonly rights: ReadonlyArray<Right & { readonly isHeld: boolean }>
}

interface Login {
  readonly name: string
  readonly isSuperuser: boolean
  readonly isOwner: boolean
  readonly mayCreate: boolean
  /** Number of functions that it may not call. */
  readonly refused: number
}

/** One row for each right, in order. */
const whichHeld = `
  SELECT
    CASE wanted.kind
      WHEN 'schema' THEN has_schema_privilege(n.oid, wanted.privilege)
      WHEN 'table' THEN has_table_privilege(c.oid, wanted.privilege)
      WHEN 'column' THEN has_column_privilege(c.oid, a.attnum, wanted.privilege)
      ELSE has_sequence_privilege(c.oid, wanted.privilege)
    END AS held
  FROM ROWS FROM (
    jsonb_to_recordset($2::jsonb) AS (kind text, object text, privilege text, "column" text)
  ) WITH ORDINALITY AS wanted
  LEFT JOIN pg_namespace AS n ON n.nspname = $1
  LEFT JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = wanted.object
  LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = wanted.column
  ORDER BY wanted.ordinality`

/** The grants of the file of a role. Those on functions, which add no right, are left out. */
const readRights = (role: string): Effect.Effect<ReadonlyArray<Right>, ProviderError.ConfigurationInvalid> =>
  Effect.map(
    ShippedSql.read(`roles/${role}.sql`, []),
    (file) =>
      [...file.replace(/--.*/g, "").matchAll(/^GRANT ([^;%]+?)\s+ON\s+(?:(SCHEMA|SEQUENCE)\s+)?([^;%]+?)\s+TO /gm)]
        .flatMap(
          ([, privileges = "", kind, objects = ""]) =>
            [...objects.matchAll(/"(\w+)"(?:\.(\w+))?/g)].flatMap(([, schema = "", object = schema]) =>
              [...privileges.matchAll(/([A-Z]+)(?:\s+\(([^)]*)\))?/g)].flatMap(([, privilege = "", columns]) =>
                (columns?.split(",") ?? [null]).map((column): Right => ({
                  kind: kind === "SCHEMA"
                    ? "schema"
                    : kind === "SEQUENCE"
                    ? "sequence"
                    : column === null
                    ? "table"
                    : "column",
                  object,
                  privilege,
                  column: column?.trim() ?? null
                }))
              )
            )
        )
  )

const roleOf = (held: ReadonlyArray<Held>, login: Login, schema: string): Answer => {
  const name = "role"
  const who = login.isSuperuser ? `${login.name} (superuser)` : login.name
  const complete = held.find(({ rights }) => rights.every(({ isHeld }) => isHeld))
  // Beyond the role that it amounts to, it may have a part of a larger one: that of an older release, or by hand.
  const larger = held.slice(0, complete === undefined ? held.length : held.indexOf(complete))
  const started = larger.find(({ rights }) =>
    rights.some((right) => right.isHeld && right.kind !== "schema" && !isOf(right, complete))
  )
  const apply = "Apply the roles again, after each migration: Roles.apply (docs/postgresql.md#roles)"
  if (started !== undefined) {
    const missing = started.rights.filter(({ isHeld }) => !isHeld)
    const shown = missing.slice(0, 3).map(({ column, object, privilege }) =>
      `${privilege} on ${object}${column === null ? "" : `.${column}`}`
    )
    return problem(
      name,
      `${who} has rights of a ${started.role}, and lacks ${shown.join(", ")}${
        missing.length > shown.length ? ` and ${missing.length - shown.length} more` : ""
      }`,
      apply
    )
  }
  if (complete === undefined) return problem(name, `${who} has no rights on the tables of schema ${schema}`, apply)
  if (login.refused > 0) {
    return problem(name, `${who} may not call ${counted(login.refused, "function")} of schema ${schema}`, apply)
  }
  const owner = login.isOwner && login.mayCreate ? ", and may migrate" : ""
  return ok(name, `${who} has the rights of a ${complete.role}${owner}`)
}

const isOf = (right: Right, held: Held | undefined) =>
  held?.rights.some(({ column, kind, object, privilege }) =>
    kind === right.kind && object === right.object && privilege === right.privilege && column === right.column
  ) === true
