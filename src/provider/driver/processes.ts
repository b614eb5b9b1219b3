/**
 * The processes that run work: who they are, and what they serve.
 */
import type { TagFilter } from "../../model/Instance.ts"
import type { SlotsInUse } from "../../waking/Notifier.ts"

/**
 * What a process serves, and with which code.
 *
 * @category models
 * @since 0.2.0
 */
export interface ProcessDuties {
  /** Names its code: `build` of `RuntimeConfig`. */
  readonly build: string
  /** `name@version` of the orchestrations that it runs. */
  readonly orchestrations: ReadonlyArray<string>
  /** Names of the activities that it runs. */
  readonly activities: ReadonlyArray<string>
  /** Which of these activities it takes. */
  readonly tags: TagFilter
  /** Turns that it runs at once; null without a limit. */
  readonly orchestrationSlots: number | null
  /** Activities that it runs at once; null without a limit. */
  readonly activitySlots: number | null
}

/**
 * Describes a process that runs work.
 *
 * @category models
 * @since 0.2.0
 */
export interface ProcessReport extends ProcessDuties {
  /** A UUID, another one for each runtime. */
  readonly id: string
  readonly host: string
  readonly pid: number
}

/**
 * What a process writes of itself.
 *
 * @category models
 * @since 0.2.0
 */
export interface ProcessRegistration extends ProcessReport {
  /** Whether the notifier shows that it lives: `showAlive` of `Notifier`. */
  readonly isListening: boolean
  /** The slots in use now, to be read when it is written. */
  readonly slotsInUse: () => SlotsInUse
}
