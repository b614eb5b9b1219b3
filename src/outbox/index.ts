export * as Outbox from "./Outbox.ts"
