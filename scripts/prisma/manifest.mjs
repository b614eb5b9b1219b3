/**
 * Reads from the text of a migration what it creates, for the module of the migrations: nothing parses SQL at run time.
 */

/** What a migration creates, alters and locks, as `Manifest` of `src/prisma/internal/migration.ts` says. */
export function manifestOf(sql) {
  const all = statements(sql)
  const created = (kind) => [
    ...new Set(all.flatMap((text) =>
      new RegExp(
        `^CREATE (?:OR REPLACE |UNIQUE |CONSTRAINT )*${kind} (?:CONCURRENTLY )?(?:IF NOT EXISTS )?(\\w+)`
      ).exec(text)?.[1] ?? []
    ))
  ]
  return {
    tables: created("TABLE"),
    indexes: created("INDEX"),
    functions: created("FUNCTION"),
    triggers: created("TRIGGER"),
    types: created("TYPE"),
    columns: all.flatMap(addedColumns),
    locks: all.flatMap((text) => /^LOCK TABLE ([\w, ]+?) IN /.exec(text)?.[1].split(", ") ?? []),
    isTransactional: !all.some((text) => /\bCONCURRENTLY\b/i.test(text)),
    indexSql: Object.fromEntries(all.flatMap((text) => {
      const name = /^CREATE (?:UNIQUE )?INDEX (?:CONCURRENTLY )?(?:IF NOT EXISTS )?(\w+)/.exec(text)?.[1]
      return name === undefined ? [] : [[name, text.replace(/\s+/g, " ")]]
    })),
    storage: Object.fromEntries(all.flatMap((text) => {
      const [, name, storage] = /^CREATE TABLE (\w+) [\s\S]*\n\) WITH \(([\s\S]*)\)$/.exec(text) ?? []
      return name === undefined ? [] : [[name, parameters(storage)]]
    })),
    optional: {
      storageParameters: clauses(sql, /(?<=^\)) WITH \((?:[^\n]*\)|\n[\s\S]*?\n\))(?=;)/gm),
      statementTriggers: clauses(sql, /^CREATE TRIGGER [^;]*\bFOR EACH STATEMENT\b[^;]*;/gm),
      tableLocks: clauses(sql, /^LOCK TABLE [^;]*;/gm)
    }
  }
}

/** What stands in the text so, each once. */
const clauses = (sql, pattern) => [...new Set(sql.match(pattern) ?? [])]

/** The tables of the first migration, column by column. Throws if one is written in another form. */
export function layoutOf(sql) {
  const all = statements(sql)
  const isTable = (text) => text.startsWith("CREATE TABLE ")
  return { tables: all.filter(isTable).map(parseTable), additions: all.filter((text) => !isTable(text)) }
}

// -----------------------------------------------------------------------------
// parsing
// -----------------------------------------------------------------------------

/** Comments, texts and bodies may contain semicolons that do not end a statement. */
function statements(sql) {
  const found = []
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

function addedColumns(statement) {
  const table = /^ALTER TABLE (?:ONLY )?(\w+)/.exec(statement)?.[1]
  return table === undefined
    ? []
    : [...statement.matchAll(/\bADD COLUMN (?:IF NOT EXISTS )?(\w+)/g)].map(([, column]) => ({ table, column }))
}

function parseTable(statement) {
  const parts = /^CREATE TABLE (?<name>\w+) \((?<body>[\s\S]*?)\n\)(?: WITH \((?<storage>[\s\S]*)\))?$/.exec(statement)
    ?.groups
  const key = /PRIMARY KEY \((.*)\)/.exec(parts?.body ?? "")?.[1]
  if (parts === undefined || key === undefined) throw new Error(`cannot read the table of: ${statement}`)
  return {
    name: parts.name,
    columns: parts.body.split("\n").map((line) => line.trim()).filter((line) => /^[a-z]/.test(line)).map(parseColumn),
    primaryKey: key.split(", "),
    storage: parameters(parts.storage)
  }
}

/** The storage parameters of a table, each such as `fillfactor = 80`. */
const parameters = (storage) => storage?.split(",").map((one) => one.trim()) ?? []

/** Types of `CREATE TABLE`, by the names that PostgreSQL prints. */
const types = {
  BIGINT: "bigint",
  BIGSERIAL: "bigint",
  INTEGER: "integer",
  TEXT: "text",
  TIMESTAMPTZ: "timestamp with time zone"
}

function parseColumn(line) {
  const parts = /^(?<name>\w+) (?<type>\w+)(?<required> NOT NULL)?(?: DEFAULT (?<default>[^,]+))?,?$/.exec(line)?.groups
  const type = types[parts?.type ?? ""]
  if (type === undefined) throw new Error(`cannot read the column of: ${line}`)
  return {
    name: parts.name,
    type,
    nullable: parts.required === undefined,
    default: parts.type === "BIGSERIAL" ? "counted" : parts.default ?? null
  }
}
