/**
 * What the migrations create in a schema, read from their text, and how an existing schema differs from it.
 *
 * Pure: the first migration is the only description of the tables both languages share, and is simple enough to be
 * parsed here.
 */

export interface Table {
  readonly name: string
  readonly columns: ReadonlyArray<Column>
  readonly primaryKey: ReadonlyArray<string>
  /** Storage parameters as SQL, each such as `fillfactor = 80`. */
  readonly storage: ReadonlyArray<string>
}

export interface Column {
  readonly name: string
  /** As PostgreSQL prints it. */
  readonly type: string
  readonly nullable: boolean
  /** As SQL, without casts; `counted` for a number of a sequence. */
  readonly default: string | null
}

export interface Layout {
  readonly tables: ReadonlyArray<Table>
  /** The other statements: indexes, and columns that only this package has. */
  readonly additions: ReadonlyArray<string>
}

/** Reads the migration that creates the tables. Throws if a table is written in another form. */
export const parse = (sql: string): Layout => {
  const all = statements(sql)
  const isTable = (text: string) => text.startsWith("CREATE TABLE ")
  return {
    tables: all.filter(isTable).map(parseTable),
    additions: all.filter((text) => !isTable(text))
  }
}

type Migrations = ReadonlyArray<{ readonly sql: string }>

/** Names of the objects that migrations create. */
export const created = (
  kind: "TABLE" | "INDEX" | "FUNCTION" | "TRIGGER" | "TYPE",
  migrations: Migrations
): ReadonlyArray<string> => {
  const pattern = new RegExp(
    `^CREATE (?:OR REPLACE |UNIQUE |CONSTRAINT )*${kind} (?:CONCURRENTLY )?(?:IF NOT EXISTS )?(\\w+)`
  )
  return [...new Set(migrations.flatMap(({ sql }) => statements(sql).flatMap((text) => pattern.exec(text)?.[1] ?? [])))]
}

/** Columns that migrations add to existing tables. */
export const addedColumns = (
  migrations: Migrations
): ReadonlyArray<{ readonly table: string; readonly column: string }> =>
  migrations.flatMap(({ sql }) => statements(sql)).flatMap((text) => {
    const table = /^ALTER TABLE (?:ONLY )?(\w+)/.exec(text)?.[1]
    return table === undefined
      ? []
      : [...text.matchAll(/\bADD COLUMN (?:IF NOT EXISTS )?(\w+)/g)].map(([, column]) => ({ table, column: column! }))
  })

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

/** Comments, texts and bodies may contain semicolons that do not end a statement. */
const statements = (sql: string): ReadonlyArray<string> => {
  const found: Array<string> = []
  let statement = ""
  let end = 0
  for (const { 0: token, index } of sql.matchAll(/--.*|'[^']*'|(\$\w*\$)[\s\S]*?\1|;/g)) {
    statement += sql.slice(end, index)
    end = index + token.length
    if (token === ";") {
      found.push(statement)
      statement = ""
    } else if (!token.startsWith("--")) statement += token
  }
  return [...found, statement + sql.slice(end)].map((text) => text.trim()).filter((text) => text !== "")
}

const parseTable = (statement: string): Table => {
  const parts = /^CREATE TABLE (?<name>\w+) \((?<body>[\s\S]*?)\n\)(?: WITH \((?<storage>[\s\S]*)\))?$/.exec(statement)
    ?.groups
  const key = /PRIMARY KEY \((.*)\)/.exec(parts?.body ?? "")?.[1]
  if (parts === undefined || key === undefined) throw new Error(`cannot read the table of: ${statement}`)
  return {
    name: parts.name!,
    columns: parts.body!.split("\n").map((line) => line.trim()).filter((line) => /^[a-z]/.test(line)).map(parseColumn),
    primaryKey: key.split(", "),
    storage: parts.storage?.split(",").map((one) => one.trim()) ?? []
  }
}

const types: Readonly<Record<string, string>> = {
  BIGINT: "bigint",
  BIGSERIAL: "bigint",
  INTEGER: "integer",
  TEXT: "text",
  TIMESTAMPTZ: "timestamp with time zone"
}

const parseColumn = (line: string): Column => {
  const parts = /^(?<name>\w+) (?<type>\w+)(?<required> NOT NULL)?(?: DEFAULT (?<default>[^,]+))?,?$/.exec(line)?.groups
  const type = types[parts?.type ?? ""]
  if (parts === undefined || type === undefined) throw new Error(`cannot read the column of: ${line}`)
  return {
    name: parts.name!,
    type,
    nullable: parts.required === undefined,
    default: parts.type === "BIGSERIAL" ? counted : parts.default ?? null
  }
}

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
