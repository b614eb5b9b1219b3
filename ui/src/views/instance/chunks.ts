/** Chunks of a stream as texts. */
import type { Chunk } from "../../client/models.ts"

export interface Segment {
  readonly offset: number
  readonly text: string
  /** What happened before it; null at the beginning. */
  readonly why: string | null
}

/** Texts that follow each other; undefined if one of them is other JSON. */
export const segmentsOf = (chunks: ReadonlyArray<Chunk>): ReadonlyArray<Segment> | undefined => {
  const segments: Array<{ offset: number; text: string; why: string | null }> = []
  const calls = new Set<string>()
  for (const one of chunks) {
    const text = stringOf(one.chunk)
    if (text === undefined) return undefined
    const call = `${one.executionId}/${one.event}`
    const why = one.startsOver && calls.has(call) ? `The activity of event ${one.event} begins anew.` : null
    calls.add(call)
    const last = segments.at(-1)
    if (last === undefined || why !== null) segments.push({ offset: one.offset, text, why })
    else last.text += text
  }
  return segments
}

/** In one line. */
export const textOf = ({ chunk }: Chunk): string => chunk ?? "hidden"

// internal

const stringOf = (chunk: string | null): string | undefined => {
  if (chunk === null || !chunk.startsWith("\"")) return undefined
  try {
    return JSON.parse(chunk) as string
  } catch {
    return undefined
  }
}
