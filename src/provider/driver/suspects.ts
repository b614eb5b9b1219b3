/**
 * The rule for suspects among activities, turns and tasks: work that was delivered again and again without an end,
 * because its process died each time. One item in flight may kill the processes, and each death counts for all of them.
 *
 * - Work that was delivered twice without an end is a suspect. A process holds at most 64 new suspects together; 16
 *   that were delivered three times, 4 that were delivered four times, and 1 that was delivered more often
 *   (`suspectGroups`).
 * - A group holds back further suspects until its work is settled or has proved itself: after two deliveries it must
 *   live for 5 seconds, and after each further one four times as long (`provingMs`). Other work is not held back.
 *
 * So the guilty item is alone from its sixth delivery on, whether 8 or 1,000 activities were in flight with it. An
 * innocent one that met it every time has been delivered five times, half of the default `maxAttempts` of 10. An item
 * that takes long to kill its process is alone from the delivery on whose proof takes longer: the 6th for 5 minutes,
 * 7th for 21, 8th for 85, 9th for 5 hours. Work that was never delivered may run beside it, and loses at most two
 * deliveries before it is a suspect itself.
 *
 * The cost: 1,000 activities in flight at two deaths are claimed again in 16 groups, 5 seconds apart or as soon as a
 * group is settled, in each process. Up to 64 are one group, so two deaths cost no time beyond the locks that must run
 * out.
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
 * How many suspects a process holds together, by deliveries: twice, three times, and so on. The last number also counts
 * for all that were delivered more often.
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
 * Admits the candidates of one claim, in order. The smallest limit among the suspects so far counts for all. The
 * first suspect that is refused holds back all suspects behind it, so that a later claim begins with it.
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
