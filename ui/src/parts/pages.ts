/** Pages with cursors that only lead forward: the cursors behind are kept, so that one can go back. */
import { useEffect, useState } from "preact/hooks"

export interface Pages {
  readonly cursor: string | undefined
  readonly number: number
  readonly next: (cursor: string) => void
  readonly first: () => void
  readonly previous: () => void
}

export const usePages = (deps: ReadonlyArray<unknown>): Pages => {
  const [cursors, setCursors] = useState<ReadonlyArray<string>>([])
  useEffect(() => setCursors([]), deps)
  return {
    cursor: cursors.at(-1),
    number: cursors.length + 1,
    next: (cursor) => setCursors([...cursors, cursor]),
    previous: () => setCursors(cursors.slice(0, -1)),
    first: () => setCursors([])
  }
}
