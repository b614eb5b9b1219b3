export * as Queue from "./Queue.ts"
export * as QueueError from "./QueueError.ts"
