/** By their numbers: 1.10.0 is newer than 1.9.0, and 2.0.0 than 2.0.0-rc.1. */
export const compareVersions = (one: string, other: string): number => {
  const numbers = numbersOf(one)
  const others = numbersOf(other)
  for (let at = 0; at < 3; at++) {
    const difference = (numbers[at] ?? 0) - (others[at] ?? 0)
    if (difference !== 0) return difference
  }
  return Number(other.includes("-")) - Number(one.includes("-"))
}

const numbersOf = (version: string): ReadonlyArray<number> =>
  (version.split(/[-+]/)[0] ?? "").split(".").map((part) => Number(part) || 0)
