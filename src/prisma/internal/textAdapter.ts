/**
 * Hands the `Texts` of a statement to its connection.
 *
 * Prisma passes arguments to its adapter as JSON, which would escape, copy and parse large texts. So a key stands in for
 * them on that way.
 */
import { PrismaPg } from "@prisma/adapter-pg"
import { Prisma } from "./client.ts"
import { withRoutines } from "./routines.ts"
import { Texts } from "./texts.ts"

export class TextAdapter extends PrismaPg {
  private readonly texts = new Map<string, Texts>()
  private keys = 0

  /** Sends the statement with keys in place of its texts. */
  async sending<A>(statement: Prisma.Sql, send: (statement: Prisma.Sql) => Promise<A>): Promise<A> {
    const keys: Array<string> = []
    const values = statement.values.map((value) => {
      if (!(value instanceof Texts)) return value
      const key = `${keyPrefix}${++this.keys}`
      this.texts.set(key, value)
      keys.push(key)
      return key
    })
    if (keys.length === 0) return send(statement)
    try {
      return await send(new Prisma.Sql(statement.strings, values))
    } finally {
      for (const key of keys) this.texts.delete(key)
    }
  }

  override async connect(): ReturnType<PrismaPg["connect"]> {
    const adapter = withRoutines(await super.connect())
    const queryRaw = adapter.queryRaw.bind(adapter)
    adapter.queryRaw = (query) => queryRaw({ ...query, args: query.args.map((value) => this.textsOf(value)) })
    return adapter
  }

  private textsOf(value: unknown) {
    const texts = typeof value === "string" && value.startsWith(keyPrefix) ? this.texts.get(value) : undefined
    return texts === undefined ? value : texts.toPostgres()
  }
}

/** No other argument begins with it: PostgreSQL stores no NUL. */
const keyPrefix = "\0texts "
