/**
 * Hands the `Texts` of a statement, and what is `Late`, to its connection.
 *
 * Prisma passes arguments to its adapter as JSON, which would escape, copy and parse large texts, and compute what is late
 * before there is a connection. So a key stands in for them on that way.
 */
import { PrismaPg } from "@prisma/adapter-pg"
import { Prisma } from "./client.ts"
import { Late } from "./late.ts"
import { withRoutines } from "./routines.ts"
import { Texts } from "./texts.ts"

export class TextAdapter extends PrismaPg {
  private readonly kept = new Map<string, Texts | Late>()
  private keys = 0

  /** Sends the statement with keys in place of such arguments. */
  async sending<A>(statement: Prisma.Sql, send: (statement: Prisma.Sql) => Promise<A>): Promise<A> {
    const keys: Array<string> = []
    const values = statement.values.map((value) => {
      if (!(value instanceof Texts || value instanceof Late)) return value
      const key = `${keyPrefix}${++this.keys}`
      this.kept.set(key, value)
      keys.push(key)
      return key
    })
    if (keys.length === 0) return send(statement)
    try {
      return await send(new Prisma.Sql(statement.strings, values))
    } finally {
      for (const key of keys) this.kept.delete(key)
    }
  }

  override async connect(): ReturnType<PrismaPg["connect"]> {
    const adapter = withRoutines(await super.connect())
    const queryRaw = adapter.queryRaw.bind(adapter)
    adapter.queryRaw = (query) => queryRaw({ ...query, args: query.args.map((value) => this.argumentOf(value)) })
    return adapter
  }

  private argumentOf(value: unknown) {
    const kept = typeof value === "string" && value.startsWith(keyPrefix) ? this.kept.get(value) : undefined
    return kept === undefined ? value : kept instanceof Late ? kept : kept.toPostgres()
  }
}

/** No other argument begins with it: PostgreSQL stores no NUL. */
const keyPrefix = "\0argument "
