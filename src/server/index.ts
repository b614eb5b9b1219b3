export * as DatabaseServer from "./DatabaseServer.ts"
export * as DatabaseServerError from "./DatabaseServerError.ts"
