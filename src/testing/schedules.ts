export * as TestSchedules from "./TestSchedules.ts"
