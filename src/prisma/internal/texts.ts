/**
 * The large texts of a statement, beside the JSON that says what they belong to.
 *
 * JSON would escape each of them once more, and PostgreSQL would parse and copy it with every row. As one `text[]` they
 * arrive as they are stored.
 */
import { Prisma } from "./client.ts"

/** Shorter texts cost less inside the JSON. */
const largeCharacters = 1024

export class Texts {
  private readonly all: Array<string> = []

  /** The position of a large text, from 1; undefined for a text that belongs in the JSON. */
  add(text: string | null): number | undefined {
    return text !== null && text.length >= largeCharacters ? this.all.push(text) : undefined
  }

  /** The argument of a function; null without a large text. */
  sql(): Prisma.Sql {
    return Prisma.sql`${this.all.length === 0 ? null : this}::text[]`
  }

  /** For the Prisma client of an application. */
  toJSON(): ReadonlyArray<string> {
    return this.all
  }

  /** For `pg`: in PostgreSQL's binary form, where nothing is escaped. */
  toPostgres(): Buffer {
    const lengths = this.all.map((text) => Buffer.byteLength(text))
    const buffer = Buffer.allocUnsafe(headerBytes + lengths.reduce((sum, length) => sum + 4 + length, 0))
    // Dimensions, whether there are nulls, type of the elements, their number, the first position.
    let offset = 0
    for (const field of [1, 0, textOid, lengths.length, 1]) offset = buffer.writeInt32BE(field, offset)
    for (const [index, text] of this.all.entries()) {
      offset = buffer.writeInt32BE(lengths[index]!, offset)
      offset += buffer.write(text, offset)
    }
    return buffer
  }
}

/** Arguments, and after them the texts that they put beside their JSON. */
export const withTexts = (args: (texts: Texts) => ReadonlyArray<Prisma.Sql>): ReadonlyArray<Prisma.Sql> => {
  const texts = new Texts()
  return [...args(texts), texts.sql()]
}

// internal

const headerBytes = 5 * 4
const textOid = 25
