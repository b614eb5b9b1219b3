/**
 * How the tables of an existing schema differ from those this package shares with duroxide-pg.
 */
import type { Column, Table } from "./migration.ts"

/** One column of an existing table. */
export interface Found {
  readonly table: string
  readonly column: string
  readonly type: string
  readonly nullable: boolean
  readonly default: string | null
  /** An identity or generated column, which needs no value. */
  readonly filled: boolean
  /** The columns of the table's primary key, separated by commas. */
  readonly primaryKey: string | null
}

/** Selects a `Found` for each column of the tables named in `$2`, in schema `$1`. */
export const query = `
  SELECT c.relname::text AS table, a.attname::text AS column, format_type(a.atttypid, a.atttypmod) AS type,
    NOT a.attnotnull AS nullable, pg_get_expr(d.adbin, d.adrelid) AS default,
    a.attidentity <> '' OR a.attgenerated <> '' AS filled,
    (SELECT string_agg(k.attname, ', ' ORDER BY p.position)
     FROM pg_index AS i
     CROSS JOIN unnest(i.indkey::smallint[]) WITH ORDINALITY AS p (number, position)
     JOIN pg_attribute AS k ON k.attrelid = c.oid AND k.attnum = p.number
     WHERE i.indrelid = c.oid AND i.indisprimary) AS "primaryKey"
  FROM pg_class AS c
  JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
  WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
    AND c.relkind IN ('r', 'p') AND c.relname = ANY($2)`

/**
 * One line per difference, none if our statements work on the tables. Unknown columns are accepted unless an insert
 * must set them.
 */
export const differences = (tables: ReadonlyArray<Table>, found: ReadonlyArray<Found>): ReadonlyArray<string> =>
  tables.flatMap(({ columns, name, primaryKey }) => {
    const present = found.filter(({ table }) => table === name)
    if (present.length === 0) return [`table ${name} is missing`]
    const key = present[0]!.primaryKey ?? "missing"
    const known = new Set(columns.map((column) => column.name))
    return [
      ...columns.flatMap((column) =>
        columnDifferences(`column ${name}.${column.name}`, column, present.find((one) => one.column === column.name))
      ),
      ...(key === primaryKey.join(", ") ? [] : [`the primary key of ${name} is ${key}, not ${primaryKey.join(", ")}`]),
      ...present
        .filter((one) => !known.has(one.column) && !one.nullable && one.default === null && !one.filled)
        .map(({ column }) => `column ${name}.${column} is unknown and has to be filled`)
    ]
  })

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const counted = "counted"

const columnDifferences = (what: string, wanted: Column, found: Found | undefined): ReadonlyArray<string> => {
  if (found === undefined) return [`${what} is missing`]
  const actual = found.filled || found.default?.startsWith("nextval(")
    ? counted
    : found.default?.replace(/::[a-z ]+$/, "").replace(/^'(-?\d+)'$/, "$1") ?? null
  return [
    ...(found.type === wanted.type ? [] : [`${what} is ${found.type}, not ${wanted.type}`]),
    ...(found.nullable === wanted.nullable
      ? []
      : [`${what} is ${found.nullable ? "nullable" : "not nullable"}`]),
    ...(actual === wanted.default
      ? []
      : [`${what} has the default ${actual ?? "null"}, not ${wanted.default ?? "null"}`])
  ]
}
