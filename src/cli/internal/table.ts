/**
 * Text for people: tables, fields, numbers, times.
 */
import { displayWidth } from "effect/cli/CliOutput"
import { concealIn } from "../../model/shared/sealed.ts"
import type { Style } from "./Output.ts"

export interface Column<Row> {
  readonly title: string
  readonly value: (row: Row) => string
  /** Alignment of the column: `right` for numbers. Defaults to left. */
  readonly align?: "right"
  /** Marks a value, after its width is known. */
  readonly mark?: (row: Row, text: string) => string
  /** Where a table is too wide, its values lose their middle or their end. At most one column of a table. */
  readonly shrinks?: "middle" | "end"
  /** Left out where a table is too wide even then, the highest number first. Defaults to never. */
  readonly dropped?: number
}

/** A line of titles and a line for each row; two spaces between columns, none at the end of a line. */
export const table = <Row>(
  rows: ReadonlyArray<Row>,
  columns: ReadonlyArray<Column<Row>>,
  style: Style
): ReadonlyArray<string> => {
  const cells = rows.map((row) => columns.map(({ value }) => oneLine(value(row))))
  const widths = columns.map(({ title }, i) => Math.max(title.length, ...cells.map((cell) => columnsOf(cell[i]!))))
  const line = (texts: ReadonlyArray<string>, mark: (text: string, i: number) => string) =>
    texts.map((text, i) => {
      const gap = " ".repeat(widths[i]! - columnsOf(text))
      return columns[i]!.align === "right" ? gap + mark(text, i) : mark(text, i) + (i === texts.length - 1 ? "" : gap)
    }).join("  ").trimEnd()
  return [
    line(columns.map(({ title }) => title), (text) => style.bold(text)),
    ...rows.map((row, r) => line(cells[r]!, (text, i) => columns[i]!.mark?.(row, text) ?? text))
  ]
}

/** A table that keeps to a width, as far as its columns can be shortened or left out. */
export const fitted = <Row>(
  rows: ReadonlyArray<Row>,
  columns: ReadonlyArray<Column<Row>>,
  style: Style,
  width: number
): ReadonlyArray<string> => {
  const widthOf = ({ title, value }: Column<Row>) =>
    Math.max(title.length, ...rows.map((row) => columnsOf(oneLine(value(row)))))
  let kept = columns
  for (;;) {
    const fixed = kept.filter(({ shrinks }) => shrinks === undefined)
    const room = width - fixed.reduce((sum, column) => sum + widthOf(column) + 2, 0)
    const needed = kept.reduce(
      (most, column) => column.shrinks !== undefined ? Math.min(widthOf(column), shortest) : most,
      0
    )
    const [next] = fixed.filter(({ dropped }) => dropped !== undefined).sort((a, b) => b.dropped! - a.dropped!)
    if (room >= needed || next === undefined) {
      const shrunk = kept.map((column) =>
        column.shrinks === undefined ? column : {
          ...column,
          value: (row: Row) =>
            (column.shrinks === "middle" ? abridged : shortened)(column.value(row), Math.max(room, shortest))
        }
      )
      return table(rows, shrunk, style)
    }
    kept = kept.filter((column) => column !== next)
  }
}

export type Field = readonly [name: string, value: string, mark?: (text: string) => string]

/** Names and values, the values in one column, within a width. */
export const fields = (
  all: ReadonlyArray<Field>,
  style: Style,
  columns = Number.POSITIVE_INFINITY
): ReadonlyArray<string> => {
  const width = Math.max(...all.map(([name]) => name.length))
  return all.map(([name, value, mark]) => {
    const text = shortened(value, Math.max(shortest, columns - width - 2))
    return `${style.dim(name.padEnd(width))}  ${mark === undefined ? text : mark(text)}`
  })
}

/** At most so many columns, with an ellipsis where something is left out. */
export const shortened = (text: string, columns: number): string => {
  const line = oneLine(text)
  if (columns === Number.POSITIVE_INFINITY) return line
  const begin = line.slice(0, mostUnits(columns))
  if (begin === line && columnsOf(line) <= columns) return line
  let kept = ""
  for (const { segment } of new Intl.Segmenter().segment(begin)) {
    if (columnsOf(kept + segment) > columns - 1) break
    kept += segment
  }
  return `${kept}…`
}

/** At most so many columns, with both ends of the text: names often differ in the last letters. */
export const abridged = (text: string, columns: number): string => {
  const line = oneLine(text)
  const isLong = line.length > mostUnits(columns)
  if (!isLong && columnsOf(line) <= columns) return line
  let end = ""
  for (const { segment } of [...new Intl.Segmenter().segment(line.slice(-mostUnits(columns)))].toReversed()) {
    if (columnsOf(segment + end) > Math.floor(columns / 2)) break
    end = segment + end
  }
  return shortened(line, columns - columnsOf(end)) + end
}

/** 1234567 as 1.2 MB. */
export const bytes = (value: number): string => {
  const units = ["kB", "MB", "GB", "TB"]
  let unit = 0
  let amount = value / 1000
  while (amount >= 1000 && unit < units.length - 1) {
    amount /= 1000
    unit++
  }
  return `${amount < 10 ? amount.toFixed(1) : Math.round(amount)} ${units[unit]}`
}

// internal

/**
 * Columns of a text. A piece at a time: the time for a whole one grows with the square of its length, and payloads have
 * megabytes. A character on the border of two pieces may count twice.
 */
const columnsOf = (text: string): number => {
  if (/^[ -~]*$/.test(text)) return text.length
  let width = 0
  for (let from = 0; from < text.length; from += 1_000) width += displayWidth(text.slice(from, from + 1_000))
  return width
}

/** A text that has more code units does not fit: emoji of families have the most for their two columns. */
const mostUnits = (columns: number): number => 32 * columns + 100

/** Columns that something which is shortened keeps. */
const shortest = 16

/**
 * Without line breaks, other control characters and marks of direction, which a terminal would obey, and with what
 * sealed payloads show of themselves.
 */
export const oneLine = (text: string) => concealIn(text).replace(/[\p{Control}\p{Bidi_Control}\u2028\u2029]+/gu, " ")
