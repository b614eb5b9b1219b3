/**
 * A sample of instances: at most so many of each definition, in constant memory. Which ones depends on a hash of the
 * id, so each instance has the same chance, and a second run takes the same ones.
 */
import { createHash } from "node:crypto"

export interface Sample<A extends { readonly instanceId: string }> {
  readonly add: (definition: string, instance: A) => void
  readonly chosen: () => ReadonlyArray<A>
}

export const make = <A extends { readonly instanceId: string }>(size: number): Sample<A> => {
  const byDefinition = new Map<string, Array<Ranked<A>>>()
  const first = (ranked: Array<Ranked<A>>) => ranked.sort((a, b) => a.rank - b.rank).slice(0, size)
  return {
    add: (definition, instance) => {
      const ranked = byDefinition.get(definition) ?? []
      ranked.push({ rank: rankOf(instance.instanceId), instance })
      byDefinition.set(definition, ranked.length < 2 * size + 100 ? ranked : first(ranked))
    },
    chosen: () => [...byDefinition.values()].flatMap((ranked) => first(ranked).map(({ instance }) => instance))
  }
}

// internal

interface Ranked<A> {
  readonly rank: number
  readonly instance: A
}

const rankOf = (instanceId: string): number => createHash("sha256").update(instanceId).digest().readUIntBE(0, 6)
