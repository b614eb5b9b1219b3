export * as Trigger from "./Trigger.ts"
