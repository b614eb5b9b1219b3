export * as QueueTest from "./QueueTest.ts"
