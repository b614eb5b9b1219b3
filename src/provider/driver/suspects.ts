/**
 * The rule for suspects, of activities, turns and tasks: work that was delivered again and again without an end, because its
 * process died each time. Something in flight may be what ends the processes, and each death is counted for all of it.
 *
 * - Work that was delivered twice without an end is a suspect. A process holds at most 64 new suspects together; of those
 *   that were delivered three times 16, four times 4, and from five times on one alone (`suspectGroups`).
 * - A group holds back further suspects until its work is settled or has proved itself: after two deliveries it must live
 *   for 5 seconds, and after each further one four times as long (`provingMs`). Other work is not held back.
 *
 * So the guilty one is alone from its sixth delivery on, whatever was in flight with it: 8 activities or 1,000. An innocent one
 * that met it every time has been delivered five times, half of the default `maxAttempts` of 10. After that the guilty one
 * collects its deliveries alone. One that needs a time `d` to end its process is alone from the delivery on whose proof takes
 * longer: 6th for 5 minutes, 7th for 21, 8th for 85, 9th for 5 hours. Work that was never delivered may run beside it and
 * loses two deliveries at most before it is a suspect itself.
 *
 * It costs: 1,000 activities in flight at two deaths are claimed again in 16 groups, 5 seconds apart or as soon as one is
 * settled, in each process. Up to 64 are one group, so two deaths cost no time beyond the locks that must run out.
 */

/**
 * Deliveries without an end after which work is a suspect.
 *
 * A claim looks at the deliveries of an instance's first visible message. The claimed item carries the highest count in
 * its batch, and from then on that one counts, also for `maxAttempts`.
 *
 * @category constants
 * @since 0.2.0
 */
export const suspectAfter = 2

/**
 * How many suspects a process holds together: of those that were delivered twice, three times, and so on; the last number
 * also counts for all that were delivered more often.
 *
 * @category constants
 * @since 0.2.0
 */
export const suspectGroups: ReadonlyArray<number> = [64, 16, 4, 1]

/**
 * The number in `groups` that counts for work with these deliveries without an end; infinite for other work.
 *
 * @category suspects
 * @since 0.2.0
 */
export const groupOf = (deliveries: number, groups: ReadonlyArray<number> = suspectGroups): number =>
  deliveries < suspectAfter ? Infinity : groups[Math.min(deliveries - suspectAfter, groups.length - 1)] ?? 0

/** How long a suspect with these deliveries holds back others. */
export const provingMs = (deliveries: number): number => 5_000 * 4 ** (deliveries - suspectAfter)

/**
 * Admits candidates of one claim, in order: a suspect while no one in its group has a smaller number. The first suspect that is
 * refused holds back all suspects behind it, so that it is the first one of a later claim.
 *
 * @category suspects
 * @since 0.2.0
 */
export const makeAdmission = (groups: ReadonlyArray<number> = suspectGroups): (deliveries: number) => boolean => {
  let admitted = 0
  let most = Infinity
  return (deliveries) => {
    if (deliveries < suspectAfter) return true
    most = Math.min(most, groupOf(deliveries, groups))
    if (admitted >= most) return false
    admitted++
    return true
  }
}
