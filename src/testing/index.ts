export { HistoryMismatch, recordHistory, replayHistory, UnreadableHistory } from "./replayHistory.ts"
export type { History, Replayed } from "./replayHistory.ts"
export * as TestRuntime from "./TestRuntime.ts"
