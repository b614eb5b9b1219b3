export * as Dataset from "./Dataset.ts"
export * as DatasetDriver from "./DatasetDriver.ts"
export * as DatasetError from "./DatasetError.ts"
