export * as SqsQueue from "./SqsQueue.ts"
