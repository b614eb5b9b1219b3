export * as Task from "./Task.ts"
export * as TaskDriver from "./TaskDriver.ts"
export * as Tasks from "./Tasks.ts"
export * as TaskWorker from "./TaskWorker.ts"
