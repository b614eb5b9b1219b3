// Reads and writes SQLite files for another process, which asks by messages; see `test/rust/SqliteFile.ts`. It is a
// process of its own because that one has the client of duroxide, and with it a second copy of SQLite: when either copy
// closes the file, the locks of the other are gone (SQLite, "How To Corrupt An SQLite Database File", section 2.2.1).
import Database from "libsql"
import { pathToFileURL } from "node:url"

/** One SELECT, or one statement that writes. */
export interface Question {
  readonly number: number
  readonly file: string
  readonly text: string
  readonly writes: boolean
}

/** The answer to the question of that number. */
export interface Answer {
  readonly number: number
  readonly rows?: ReadonlyArray<unknown>
  readonly error?: string
}

const ask = ({ file, text, writes }: Question): ReadonlyArray<unknown> => {
  const url = pathToFileURL(file)
  if (!writes) url.searchParams.set("mode", "ro")
  const database = new Database(writes ? file : url.href, { timeout: 60_000 })
  try {
    if (!writes) return database.prepare(text).all()
    database.exec(text)
    return []
  } finally {
    database.close()
  }
}

process.on("message", (question: Question) => {
  const { number } = question
  try {
    process.send!({ number, rows: ask(question) } satisfies Answer)
  } catch (error) {
    process.send!({ number, error: String(error) } satisfies Answer)
  }
})
process.on("disconnect", () => process.exit())
