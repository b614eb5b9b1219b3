export * as Dataset from "./Dataset.ts"
export * as DatasetError from "./DatasetError.ts"
