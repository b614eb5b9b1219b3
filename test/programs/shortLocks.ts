import type * as Duration from "effect/Duration"

/**
 * Locks with which the work of a killed process is taken over soon. On a starved machine those of living processes end
 * as well, however often: that makes no work poison.
 */
export const shortLocks = (timeout: Duration.Input) => ({
  orchestrationLockTimeout: timeout,
  workerLockTimeout: timeout,
  maxAttempts: 1_000
})
