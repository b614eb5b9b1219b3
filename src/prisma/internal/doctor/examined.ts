/**
 * What the checks of an examination look at: sessions on the server, and the settings of the processes.
 */
import type { Pair } from "../probes/probe.ts"

export interface Examined {
  /** Two sessions of the URL that processes connect with. */
  readonly used: Pair
  /** Two sessions at the address of the server itself; the same as `used` where both have one URL. */
  readonly direct: Pair
  readonly schema: string
  /** The schema has our tables. */
  readonly isMigrated: boolean
  /** The schema has those of duroxide-pg, too. */
  readonly isShared: boolean
  readonly isStandby: boolean
  /** `maxConnections` of each process. */
  readonly maxConnections: number
}
