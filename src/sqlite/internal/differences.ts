/**
 * Collects what differs between the file and the target, with a checksum of each side for each table.
 */
import { createHash } from "node:crypto"
import type * as Tables from "./tables.ts"

/** A table that is compared. Of `instance_locks`, a file has none to compare: an import releases them. */
export type Name = Tables.Name | "instance_locks"

export interface Difference {
  readonly table: Name
  /** Null for a session, and for an activity without an instance. */
  readonly instanceId: string | null
  /** Its key, such as `execution 1, event 3`; empty if the instance has one such row. */
  readonly row: string
  /**
   * `missing`: the target lacks the row of the file. `additional`: the file lacks it. `order`: the rows are equal, but
   * in another order.
   */
  readonly kind: "missing" | "additional" | "differs" | "order"
  /** Those that differ; empty for other kinds. */
  readonly columns: ReadonlyArray<string>
}

export interface Side {
  readonly rows: number
  /** SHA-256 of all compared rows. */
  readonly checksum: string
}

export interface TableReport {
  readonly table: Name
  readonly inFile: Side
  readonly inTarget: Side
}

/** A row with numbers, strings, and SHA-256 for payloads. */
export type Compared = ReadonlyArray<string | number | null>

export const make = (max: number) => {
  const sides = new Map<Name, { readonly inFile: Sum; readonly inTarget: Sum }>()
  const found: Array<Difference> = []
  const differing = new Set<string>()
  let count = 0
  const of = (name: Name) => {
    const known = sides.get(name)
    if (known !== undefined) return known
    const made = { inFile: sum(), inTarget: sum() }
    sides.set(name, made)
    return made
  }
  return {
    of,
    add: (difference: Difference) => {
      count++
      if (difference.instanceId !== null) differing.add(difference.instanceId)
      if (found.length < max) found.push(difference)
    },
    result: () => ({
      tables: [...sides].map(([table, { inFile, inTarget }]): TableReport => ({
        table,
        inFile: inFile.end(),
        inTarget: inTarget.end()
      })),
      differences: found,
      differenceCount: count,
      differingInstances: differing.size
    })
  }
}

export type Differences = ReturnType<typeof make>

// internal

type Sum = ReturnType<typeof sum>

const sum = () => {
  const hash = createHash("sha256")
  let rows = 0
  return {
    add: (row: Compared) => {
      rows++
      hash.update(`${JSON.stringify(row)}\n`)
    },
    end: (): Side => ({ rows, checksum: hash.digest("hex") })
  }
}
