/**
 * How values of the server become values of JavaScript, whatever the application has set in `pg`
 * (`types.setTypeParser`) and in its sessions (`TimeZone`).
 */
import * as pg from "pg"

type Types = pg.CustomTypesConfig

/** A statement of the adapter, with parsers that only it decides; another one as it is. */
export const fixed = <Statement>(statement: Statement): Statement => {
  const { types } = (typeof statement === "object" ? statement : {}) as { readonly types?: Types }
  return types === undefined ? statement : { ...statement, types: { getTypeParser: parserOf(parsers, types) } }
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

/** The own parsers before those of `types`. */
const parserOf = (own: ReadonlyMap<number, Parser>, types: Types): Types["getTypeParser"] =>
  ((type: Parameters<Types["getTypeParser"]>[0], format: "text" = "text") =>
    (format === "text" ? own.get(type) : undefined) ?? types.getTypeParser(type, format)) as Types["getTypeParser"]

const asText = (text: string) => text
const asInteger = (text: string) => Number.parseInt(text, 10)

/** Zones of the past may have seconds. */
const pattern = /^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)?([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?$/

type Parser = (text: string) => unknown

/** An array of one dimension. */
const arrayOf = (parse: Parser): Parser => (text) =>
  // An element is quoted, with \\ before a quote and a backslash, or plain.
  [...text.slice(1, -1).matchAll(/"((?:[^"\\]|\\.)*)"|[^,]+/gs)].map(([plain, quoted]) =>
    quoted === undefined ? plain === "NULL" ? null : parse(plain) : parse(quoted.replace(/\\(.)/gs, "$1"))
  )

const { builtins } = pg.types

const asBoolean = (text: string) => text === "t"

/** Arrays are not in `builtins`: bool[], int2[], int4[], int8[], float4[], float8[], text[], varchar[], uuid[]. */
const forAll: ReadonlyArray<readonly [number, Parser]> = [
  [builtins.BOOL, asBoolean],
  [1000, arrayOf(asBoolean)],
  [builtins.INT2, asInteger],
  [1005, arrayOf(asInteger)],
  [builtins.INT4, asInteger],
  [1007, arrayOf(asInteger)],
  [builtins.INT8, asText],
  [1016, arrayOf(asText)],
  [builtins.OID, asInteger],
  [builtins.FLOAT4, Number.parseFloat],
  [1021, arrayOf(Number.parseFloat)],
  [builtins.FLOAT8, Number.parseFloat],
  [1022, arrayOf(Number.parseFloat)],
  [builtins.TEXT, asText],
  [1009, arrayOf(asText)],
  [builtins.VARCHAR, asText],
  [1015, arrayOf(asText)],
  [builtins.UUID, asText],
  [2951, arrayOf(asText)]
]

const defaults: ReadonlyMap<number, Parser> = new Map([
  ...forAll,
  [builtins.JSON, JSON.parse],
  [builtins.JSONB, JSON.parse]
])

/**
 * For the adapter, which parses JSON itself. It would use what the application has set for the others, and drops the
 * zone of a `timestamptz`, which is right in UTC alone.
 */
const parsers: ReadonlyMap<number, Parser> = new Map([...forAll, [builtins.TIMESTAMPTZ, inUtc]])

/** What `pg` does by itself with the types that statements of this package return. For its connections. */
export const ours: Types = { getTypeParser: parserOf(defaults, pg.types) }
