export * as ProviderTest from "./ProviderTest.ts"
