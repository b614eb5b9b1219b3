export * as Completion from "./Completion.ts"
export * as CompletionApi from "./CompletionApi.ts"
export * as External from "./External.ts"
