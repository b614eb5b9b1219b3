/** By their numbers: 1.10.0 is newer than 1.9.0. */
export const compareVersions = (one: string, other: string): number => {
  const numbers = one.split(/[.+-]/)
  const others = other.split(/[.+-]/)
  for (let at = 0; at < 3; at++) {
    const difference = Number(numbers[at] ?? 0) - Number(others[at] ?? 0)
    if (difference !== 0 && !Number.isNaN(difference)) return difference
  }
  return 0
}
