/**
 * Which hints are about one item, so that the process that claims it can say to the others that there is nothing left
 * to look for.
 *
 * If a process said so wrongly, work would wait until the next fallback look. So it says so only of an item that its
 * claim has returned, and of hints that it knew before it sent the claim: what they announce was stored by then. Items
 * are distinguished by fingerprints of their texts. Two items may have the same text, such as two equal signals; then
 * each hint of them needs an item of its own.
 */
import { createHash, randomUUID } from "node:crypto"
import type { HintedItem } from "./Notifier.ts"

export interface Taken {
  /** A hint about one item, of this process or another one, at this time in monotonic milliseconds. */
  readonly hinted: (item: HintedItem, nowMs: number) => void
  /** The hints known now. */
  readonly known: () => Known
  /** The ids of those hints among the known ones whose items are among the texts that were claimed. */
  readonly claimed: (known: Known, texts: ReadonlyArray<string>) => ReadonlyArray<string>
}

/** A number that grows with each hint. */
export type Known = number

/** The hint of one item that has just been stored. */
export const itemOf = (text: string): HintedItem => ({
  id: randomUUID().replaceAll("-", "").slice(0, 16),
  fingerprint: fingerprintOf(text)
})

export const make = (): Taken => {
  const hints = new Map<string, { readonly fingerprint: string; readonly number: number; readonly atMs: number }>()
  let number = 0
  return {
    hinted: ({ fingerprint, id }, nowMs) => {
      for (const [oldest, { atMs }] of hints) {
        if (hints.size < mostHints && nowMs - atMs < rememberedMs) break
        hints.delete(oldest)
      }
      hints.set(id, { fingerprint, number: ++number, atMs: nowMs })
    },
    known: () => number,
    claimed: (known, texts) => {
      const candidates = [...hints].filter(([, hint]) => hint.number <= known)
      if (candidates.length === 0 || texts.length > mostTexts) return []
      const items = countsOf(texts.map(fingerprintOf))
      const hinted = countsOf(candidates.map(([, { fingerprint }]) => fingerprint))
      const taken = candidates
        .filter(([, { fingerprint }]) => (items.get(fingerprint) ?? 0) >= hinted.get(fingerprint)!)
        .map(([id]) => id)
      for (const id of taken) hints.delete(id)
      return taken
    }
  }
}

// internal

/** All late looks are over by then. */
const rememberedMs = 2_000

const mostHints = 64

/** Who claims more is busy, and so are the others. */
const mostTexts = 100

const countsOf = (all: ReadonlyArray<string>): ReadonlyMap<string, number> => {
  const counts = new Map<string, number>()
  for (const one of all) counts.set(one, (counts.get(one) ?? 0) + 1)
  return counts
}

/** 128 bits. */
const fingerprintOf = (text: string) => createHash("sha256").update(text).digest("hex").slice(0, 32)
