export * as Outbox from "./Outbox.ts"
export * as OutboxDriver from "./OutboxDriver.ts"
