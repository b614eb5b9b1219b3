export * as ProviderTest from "./ProviderTest.ts"
export * as TestRuntime from "./TestRuntime.ts"
