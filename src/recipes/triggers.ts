export * as Trigger from "./Trigger.ts"
export * as TriggerDriver from "./TriggerDriver.ts"
