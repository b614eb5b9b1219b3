export * as MemoryScheduleDriver from "./MemoryScheduleDriver.ts"
export * as ScheduleDriver from "./ScheduleDriver.ts"
export * as Schedules from "./Schedules.ts"
