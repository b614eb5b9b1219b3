/**
 * Readings of electricity meters: the records of the example, as NDJSON on their way in and as Parquet at rest.
 */
import { Result, Schema } from "effect"
import { parquetReadObjects } from "hyparquet"
import { parquetWriteBuffer } from "hyparquet-writer"

export const Reading = Schema.Struct({
  meter: Schema.NonEmptyString,
  /** End of the interval of five minutes. */
  at: Schema.DateFromString,
  wattHours: Schema.Int,
  voltage: Schema.Finite
})

export type Reading = typeof Reading.Type

export const Meter = Schema.Struct({ id: Schema.NonEmptyString, city: Schema.NonEmptyString })

export type Meter = typeof Meter.Type

const decodeLine = Schema.decodeUnknownResult(Schema.fromJsonString(Reading))

/** The records of NDJSON text, or which line is not one. */
export const parse = (ndjson: string): Result.Result<ReadonlyArray<Reading>, string> => {
  const records: Array<Reading> = []
  const lines = ndjson.split("\n")
  for (const [index, line] of lines.entries()) {
    if (line === "") continue
    const record = decodeLine(line)
    if (Result.isFailure(record)) return Result.fail(`line ${index + 1} is not a reading`)
    records.push(record.success)
  }
  return Result.succeed(records)
}

/** One file of Parquet, in columns. */
export const toParquet = (records: ReadonlyArray<Reading>): Uint8Array =>
  new Uint8Array(parquetWriteBuffer({
    columnData: [
      { name: "meter", type: "STRING", data: records.map(({ meter }) => meter), nullable: false },
      { name: "at", type: "TIMESTAMP", data: records.map(({ at }) => at), nullable: false },
      { name: "wattHours", type: "INT32", data: records.map(({ wattHours }) => wattHours), nullable: false },
      { name: "voltage", type: "DOUBLE", data: records.map(({ voltage }) => voltage), nullable: false }
    ]
  }))

export const fromParquet = async (bytes: Uint8Array): Promise<ReadonlyArray<Reading>> => {
  const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer
  return await parquetReadObjects({ file }) as unknown as ReadonlyArray<Reading>
}
