/** Groups items by a key, in the order in which the keys first come. */
export const groupsOf = <A, Key>(items: Iterable<A>, keyOf: (item: A) => Key): ReadonlyMap<Key, ReadonlyArray<A>> => {
  const groups = new Map<Key, Array<A>>()
  for (const item of items) {
    const key = keyOf(item)
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [item])
    else group.push(item)
  }
  return groups
}
