/**
 * Attributes of an instance: named texts, numbers and times, by which instances are found.
 *
 * @since 0.3.0
 */
import type * as DateTime from "effect/DateTime"

/**
 * The value of an attribute as it is read. A time is in whole milliseconds.
 *
 * @category models
 * @since 0.3.0
 */
export type Value = string | number | DateTime.Utc

/**
 * The value of an attribute as it is given.
 *
 * **Details**
 *
 * A text has at most 256 characters and no NUL; a number is finite; a time is from year 1 to 9999, in whole
 * milliseconds.
 *
 * @category models
 * @since 0.3.0
 */
export type Given = string | number | Date | DateTime.DateTime

/**
 * The attributes of an instance, by name.
 *
 * **Details**
 *
 * A name begins with a letter and has only letters, digits, `_`, `.` and `-`, at most 64 of them. An instance has at
 * most 20 attributes.
 *
 * @category models
 * @since 0.3.0
 */
export interface Attributes {
  readonly [name: string]: Given
}

/**
 * Changes of attributes, by name; null removes one. Those that are not named stay.
 *
 * @category models
 * @since 0.3.0
 */
export interface Changes {
  readonly [name: string]: Given | null
}

/**
 * Numbers or times in a range, which includes `from` and ends before `below`; at least one of them is given.
 *
 * @category models
 * @since 0.3.0
 */
export interface Range<A extends number | Date | DateTime.DateTime> {
  readonly from?: A | undefined
  readonly below?: A | undefined
}

/**
 * What attributes must be, by name: equal to a value, or in a range. All must hold.
 *
 * @category models
 * @since 0.3.0
 */
export interface Conditions {
  readonly [name: string]: Given | Range<number> | Range<Date | DateTime.DateTime>
}
