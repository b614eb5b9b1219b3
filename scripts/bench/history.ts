/**
 * What the nightly runs came to: a line of JSON for each in history.jsonl, and the page that is drawn from them.
 */

export interface Night {
  /** ISO date and time of the end of the run, in UTC. */
  readonly at: string
  /** The commit that was measured. */
  readonly commit: string
  readonly cores: number
  /** The version of Node. */
  readonly node: string
  /** What it was called with, such as `--seconds 30 --rounds 3`. */
  readonly options: string
  /** By name: how many times better ours is than what the name says. */
  readonly ratios: Readonly<Record<string, number>>
}

/** How many runs a number is compared with. */
const before = 5

/** A ratio falls if it is below this part of the median of the runs before. */
const leastPart = 0.9

export const parse = (text: string): ReadonlyArray<Night> =>
  text.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line) as Night)

/** One sentence for each ratio of the last run that has fallen, or is missing, beside the runs before it. */
export const falls = (nights: ReadonlyArray<Night>): ReadonlyArray<string> => {
  const last = nights.at(-1)
  if (last === undefined) return ["no run"]
  const comparable = comparableTo(last, nights.slice(0, -1))
  const names = new Set([...comparable.slice(-before), last].flatMap(({ ratios }) => Object.keys(ratios)))
  return [...names].flatMap((name) => {
    const usual = usualOf(name, comparable)
    const ratio = last.ratios[name]
    if (ratio === undefined) return [`${name}: not measured`]
    return usual !== undefined && ratio < leastPart * usual
      ? [`${name}: ${shown(ratio)}, at least ${shown(leastPart * usual)} expected after ${shown(usual)}`]
      : []
  })
}

/** The page, as Markdown: a table for the last run of each kind, the newest first. */
export const page = (nights: ReadonlyArray<Night>): string => {
  const head = [
    "# History of the bench",
    "",
    "Drawn from `history.jsonl` by `npm run bench -- history`; `npm run bench -- nightly` adds a run. Each number says how",
    "many times better ours is than what its row names: above 1 is better. Rows of ours alone are parts of a rate. Runs",
    "are compared with those on as many cores and with the same options.",
    ""
  ]
  const newest = nights.toReversed()
  const lasts = newest.filter((night, i) => comparableTo(night, newest.slice(0, i)).length === 0)
  return [
    ...head,
    ...lasts.length === 0 ? ["There is no run yet.", ""] : lasts.flatMap((last) => section(last, nights))
  ]
    .join("\n")
}

// internal

const section = (last: Night, nights: ReadonlyArray<Night>): ReadonlyArray<string> => {
  const all = comparableTo(last, nights)
  const rows = Object.keys(last.ratios).map((name) => {
    const usual = usualOf(name, all.slice(0, -1))
    return [
      name,
      shown(last.ratios[name]!),
      usual === undefined ? "" : shown(usual),
      usual === undefined ? "" : shown(leastPart * usual),
      curve(all.slice(-30).map(({ ratios }) => ratios[name]))
    ]
  })
  return [
    `The last run, ${
      last.at.slice(0, 10)
    }: commit ${last.commit}, ${last.cores} cores, Node ${last.node}, \`${last.options}\`.`,
    "",
    ...table([["Row", "Now", "Median of five before", "Least", "Runs on as many cores"], ...rows]),
    ""
  ]
}

const comparableTo = ({ cores, options }: Night, nights: ReadonlyArray<Night>) =>
  nights.filter((night) => night.cores === cores && night.options === options)

const usualOf = (name: string, nights: ReadonlyArray<Night>): number | undefined => {
  const values = nights.flatMap(({ ratios }) => ratios[name] ?? []).slice(-before).sort((a, b) => a - b)
  return values[Math.floor(values.length / 2)]
}

const shown = (value: number) => String(Number(value.toPrecision(3)))

/** A character for each run: low for the least of them, high for the greatest; a dot where there is no number. */
const curve = (values: ReadonlyArray<number | undefined>) => {
  const known = values.filter((value) => value !== undefined)
  const [least, most] = [Math.min(...known), Math.max(...known)]
  return values.map((value) =>
    value === undefined ? "·" : "▁▂▃▄▅▆▇█"[most === least ? 3 : Math.round(7 * (value - least) / (most - least))]
  ).join("")
}

/** Padded, as a person can read it. */
const table = ([head, ...rows]: ReadonlyArray<ReadonlyArray<string>>) => {
  const widths = head!.map((_, i) => Math.max(3, ...[head!, ...rows].map((row) => row[i]!.length)))
  const line = (cells: ReadonlyArray<string>) => `| ${cells.map((cell, i) => cell.padEnd(widths[i]!)).join(" | ")} |`
  return [line(head!), line(widths.map((width) => "-".repeat(width))), ...rows.map(line)]
}
