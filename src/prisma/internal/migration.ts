/** One file of `prisma/migrations`. */
export interface Migration {
  /** The name of its folder, `<stamp>_<title>`: the order in which migrations are applied. */
  readonly name: string
  readonly sql: string
}

/** Oldest first. The first one creates the tables shared with duroxide-pg. */
export type All = readonly [Migration, ...ReadonlyArray<Migration>]
