/**
 * How values of the server become values of JavaScript, whatever the application has set in `pg`
 * (`types.setTypeParser`) and in its sessions (`TimeZone`).
 */
import * as pg from "pg"

type Types = pg.CustomTypesConfig

/** A statement of the adapter, with parsers that only it decides; another one as it is. */
export const fixed = <Statement>(statement: Statement): Statement => {
  const { types } = (typeof statement === "object" ? statement : {}) as { readonly types?: Types }
  return types === undefined ? statement : { ...statement, types: { getTypeParser: parserOf(types) } }
}

/** From `2026-01-01 10:30:00.123456+01`, as the adapter returns it. Another text (`infinity`) stays as it is. */
export const inUtc = (text: string): string => {
  const [, local, fraction = "", sign, hours, minutes = "0", seconds = "0"] = pattern.exec(text) ?? []
  if (local === undefined) return text
  const aheadMs = (Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds)) * (sign === "-" ? -1000 : 1000)
  const utc = new Date(Date.parse(`${local.replace(" ", "T")}Z`) - aheadMs).toISOString()
  return utc.replace(".000Z", `${fraction}+00:00`)
}

// internal

/**
 * For these types the adapter would use what the application has set, and it drops the zone of a `timestamptz`, which
 * is right in UTC alone.
 */
const parserOf = (types: Types): Types["getTypeParser"] =>
  ((type: Parameters<Types["getTypeParser"]>[0], format: "text" = "text") =>
    (format === "text" ? parsers.get(type) : undefined) ?? types.getTypeParser(type, format)) as Types["getTypeParser"]

const asText = (text: string) => text
const asInteger = (text: string) => Number.parseInt(text, 10)

/** Zones of the past may have seconds. */
const pattern = /^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)?([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?$/

/** The defaults of `pg`. */
const parsers: ReadonlyMap<number, (text: string) => unknown> = new Map<number, (text: string) => unknown>([
  [pg.types.builtins.BOOL, (text) => text === "t"],
  [pg.types.builtins.INT2, asInteger],
  [pg.types.builtins.INT4, asInteger],
  [pg.types.builtins.INT8, asText],
  [pg.types.builtins.OID, asInteger],
  [pg.types.builtins.FLOAT4, Number.parseFloat],
  [pg.types.builtins.FLOAT8, Number.parseFloat],
  [pg.types.builtins.TEXT, asText],
  [pg.types.builtins.VARCHAR, asText],
  [pg.types.builtins.UUID, asText],
  [pg.types.builtins.TIMESTAMPTZ, inUtc]
])
