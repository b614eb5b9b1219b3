import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type { PayloadMismatch, PayloadTooLarge } from "../../model/shared/payload.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { ScheduleExists, ScheduleNotFound } from "./errors.ts"
import type { RunInfo, ScheduleInfo } from "./info.ts"
import type { Schedule } from "./made.ts"

/**
 * Schedules in order of their names.
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
   * Stores a schedule. If another schedule has this name, `ifExists: "refuse"` fails with `ScheduleExists`, and
   * `"replace"` replaces its definition: a new timing counts from now on; a pause and the list of runs stay. Defaults
   * to `refuse`. If the payload is a function, only processes that have the schedule in `Schedules.layer` fire it.
   */
  readonly create: (
    schedule: Schedule,
    options?: { readonly ifExists?: "refuse" | "replace" | undefined }
  ) => Effect.Effect<
    "Created" | "Replaced" | "Unchanged",
    ScheduleExists | PayloadMismatch | PayloadTooLarge | ProviderError
  >
  /** Lists schedules by name. `next` is how many of the next occurrences it returns, up to 100; defaults to 1. */
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
  /** Reads the last runs of a schedule, the newest first; 100 are kept. `limit` defaults to 100. */
  readonly runs: (
    name: string,
    options?: { readonly limit?: number | undefined }
  ) => Effect.Effect<ReadonlyArray<RunInfo>, ScheduleNotFound | ProviderError>
  /** Pauses the schedule. Occurrences during a pause never start. Returns false if it was paused already. */
  readonly pause: (
    name: string,
    options?: { readonly reason?: string | undefined }
  ) => Effect.Effect<boolean, ScheduleNotFound | ProviderError>
  /** Resumes the schedule. Returns false if it was not paused. */
  readonly resume: (name: string) => Effect.Effect<boolean, ScheduleNotFound | ProviderError>
  /**
   * Asks for a run now, also of a paused schedule; `overlap` applies. A scheduler starts it. Returns the id of the
   * instance that it starts, or the key of the task. A repeated call asks for another run.
   */
  readonly runNow: (name: string) => Effect.Effect<string, ScheduleNotFound | ProviderError>
  /**
   * Returns the occurrences of the timing from one time to another, both included. Fails with `InvalidInput` if there
   * are more than 10,000.
   */
  readonly occurrences: (
    name: string,
    range: { readonly from: Date; readonly to: Date }
  ) => Effect.Effect<ReadonlyArray<Date>, ScheduleNotFound | ProviderError>
  /**
   * Asks for the past occurrences of this range, and returns how many there are. `overlap` does not apply: they start
   * 100 at a time. An occurrence whose instance or task exists starts nothing.
   */
  readonly backfill: (
    name: string,
    range: { readonly from: Date; readonly to: Date }
  ) => Effect.Effect<number, ScheduleNotFound | ProviderError>
  /** Deletes the schedule and the list of its runs. What they have started continues. */
  readonly delete: (name: string) => Effect.Effect<void, ScheduleNotFound | ProviderError>
}
