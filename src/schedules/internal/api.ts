import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type { PayloadMismatch, PayloadTooLarge } from "../../model/shared/payload.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { ScheduleExists, ScheduleNotFound } from "./errors.ts"
import type { RunInfo, ScheduleInfo } from "./info.ts"
import type { Schedule } from "./made.ts"

/**
 * Schedules and what became of them, in order of their names.
 *
 * @category models
 * @since 0.3.0
 */
export interface Page {
  readonly schedules: ReadonlyArray<ScheduleInfo>
  /** The `after` of the next page; undefined if this is the last one. */
  readonly next: string | undefined
}

/**
 * The methods of `Schedules`.
 *
 * @category models
 * @since 0.3.0
 */
export interface Service {
  /**
   * Stores a schedule. `ifExists` says what happens to another one of the name: `refuse` fails with `ScheduleExists`,
   * `replace` gives it this definition. Then a new timing counts from now on; its pause and its runs stay. Defaults to
   * `refuse`. A schedule whose payload is made by code is fired by processes that have it in `Schedules.layer`.
   */
  readonly create: (
    schedule: Schedule,
    options?: { readonly ifExists?: "refuse" | "replace" | undefined }
  ) => Effect.Effect<
    "Created" | "Replaced" | "Unchanged",
    ScheduleExists | PayloadMismatch | PayloadTooLarge | ProviderError
  >
  /** The schedules by name in order. `next`: how many of the next occurrences, up to 100; defaults to 1. */
  readonly list: (options?: {
    readonly after?: string | undefined
    /** Defaults to 100, at most 1,000. */
    readonly limit?: number | undefined
    readonly next?: number | undefined
  }) => Effect.Effect<Page, ProviderError>
  readonly get: (
    name: string,
    options?: { readonly next?: number | undefined }
  ) => Effect.Effect<Option.Option<ScheduleInfo>, ProviderError>
  /** The last runs of a schedule, the newest first; 100 are kept. `limit` defaults to 100. */
  readonly runs: (
    name: string,
    options?: { readonly limit?: number | undefined }
  ) => Effect.Effect<ReadonlyArray<RunInfo>, ScheduleNotFound | ProviderError>
  /** Occurrences during a pause do not start, neither then nor later. False if it was paused already. */
  readonly pause: (
    name: string,
    options?: { readonly reason?: string | undefined }
  ) => Effect.Effect<boolean, ScheduleNotFound | ProviderError>
  /** False if it was not paused. */
  readonly resume: (name: string) => Effect.Effect<boolean, ScheduleNotFound | ProviderError>
  /**
   * Asks for a run now, by the rule for overlaps; also of a paused schedule. A scheduler starts it. Returns the id of
   * the instance that it starts, or the key of the task. A call that is repeated asks for another run.
   */
  readonly runNow: (name: string) => Effect.Effect<string, ScheduleNotFound | ProviderError>
  /**
   * The occurrences of the timing from one time to another, both included. Fails with `InvalidInput` if there are more
   * than 10,000.
   */
  readonly occurrences: (
    name: string,
    range: { readonly from: Date; readonly to: Date }
  ) => Effect.Effect<ReadonlyArray<Date>, ScheduleNotFound | ProviderError>
  /**
   * Asks for these occurrences, as far as they are settled; returns how many they are. They start beside each other and
   * whatever runs, 100 at a time. One whose instance or task exists starts nothing.
   */
  readonly backfill: (
    name: string,
    range: { readonly from: Date; readonly to: Date }
  ) => Effect.Effect<number, ScheduleNotFound | ProviderError>
  /** Deletes the schedule and the list of its runs. What they have started continues. */
  readonly delete: (name: string) => Effect.Effect<void, ScheduleNotFound | ProviderError>
}
