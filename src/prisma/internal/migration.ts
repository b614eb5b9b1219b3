/** One file of `prisma/migrations`. */
export interface Migration {
  /** The name of its folder, `<stamp>_<title>`: the order in which migrations are applied. */
  readonly name: string
  readonly sql: string
  readonly manifest: Manifest
}

/** What a migration creates, alters and locks: names, as they stand in its statements. */
export interface Manifest {
  readonly tables: ReadonlyArray<string>
  readonly indexes: ReadonlyArray<string>
  readonly functions: ReadonlyArray<string>
  readonly triggers: ReadonlyArray<string>
  readonly types: ReadonlyArray<string>
  /** Columns that it adds to existing tables. */
  readonly columns: ReadonlyArray<{ readonly table: string; readonly column: string }>
  /** Tables that it locks by a statement of its own. */
  readonly locks: ReadonlyArray<string>
  /** False if a statement cannot run inside a transaction. */
  readonly isTransactional: boolean
  /** The statement that creates each index, in one line, by the name of the index. */
  readonly indexSql: Readonly<Record<string, string>>
  /** Storage parameters of the tables that it creates with some, each such as `fillfactor = 80`. */
  readonly storage: Readonly<Record<string, ReadonlyArray<string>>>
  /** Parts of its text that a server may lack, and that can be left out. */
  readonly optional: {
    readonly storageParameters: ReadonlyArray<string>
    readonly statementTriggers: ReadonlyArray<string>
    readonly tableLocks: ReadonlyArray<string>
  }
}

export interface Table {
  readonly name: string
  readonly columns: ReadonlyArray<Column>
  readonly primaryKey: ReadonlyArray<string>
  /** Storage parameters as SQL, each such as `fillfactor = 80`. */
  readonly storage: ReadonlyArray<string>
}

export interface Column {
  readonly name: string
  /** The name PostgreSQL prints. */
  readonly type: string
  readonly nullable: boolean
  /** SQL without casts; `counted` for a number of a sequence. */
  readonly default: string | null
}

/** The tables that this package shares with duroxide-pg. */
export interface Layout {
  readonly tables: ReadonlyArray<Table>
  /** The other statements of the migration that creates them: their indexes. */
  readonly additions: ReadonlyArray<string>
}

/** The migrations of a release. */
export interface Release {
  /** Oldest first. The first one creates the tables of `shared`, and nothing but them and their indexes. */
  readonly migrations: readonly [Migration, ...ReadonlyArray<Migration>]
  readonly shared: Layout
}
