/**
 * Errors that say nothing about the store.
 */
import type { ProviderError } from "../ProviderError.ts"

/** Whether a fault is one of the request or of its caller: the store works. */
export const isOfTheCall = ({ reason }: ProviderError): boolean => faultsOfTheCall.has(reason._tag)

// internal

const faultsOfTheCall: ReadonlySet<ProviderError["reason"]["_tag"]> = new Set([
  "LockLost",
  "DuplicateEvent",
  "InvalidInput",
  "InstanceNotFound",
  "ExecutionNotFound",
  "InstanceRunning",
  "InstanceEnded",
  "InstanceHasParent",
  "ChildLeftBehind",
  "DataCorrupted",
  "DataRefused",
  "Closed"
])
