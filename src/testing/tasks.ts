export * as TestTasks from "./TestTasks.ts"
