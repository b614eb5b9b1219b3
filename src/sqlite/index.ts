export * as SqliteError from "./SqliteError.ts"
export * as SqliteImport from "./SqliteImport.ts"
