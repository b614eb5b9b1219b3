/**
 * The verbs of the validation suite: calls of a provider without envelopes and options.
 *
 * Verbs that fetch have three forms: `fetchWork` returns an option, `claimWork` requires an item, `expectNoWork`
 * requires that there is no item. Unless a test says otherwise, locks last 30 seconds, and fetches do not wait. Time
 * passes through `elapse`: virtual time moves at once, real time is slept.
 *
 * @since 0.1.0
 */
export * from "./harness/expectations.ts"
export * from "./harness/instances.ts"
export * from "./harness/items.ts"
export * from "./harness/orchestratorQueue.ts"
export * from "./harness/processes.ts"
export * from "./harness/services.ts"
export * from "./harness/time.ts"
export * from "./harness/workerQueue.ts"
