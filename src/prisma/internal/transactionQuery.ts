/**
 * Statements on a connection of the application, inside its transaction.
 */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import type { TransactionConnection } from "../../model/shared/transactionConnection.ts"
import { ProviderError } from "../../provider/ProviderError.ts"
import * as SqlFault from "../../provider/SqlFault.ts"
import type { Database } from "../Database.ts"
import { Prisma } from "./client.ts"
import * as Connection from "./connection.ts"

/** What sends statements: through the pool of `Database`, or on one connection. */
export type Statements = Pick<Database["Service"], "query" | "schemaSql">

/**
 * Sends each statement on the connection. With an invalid name for the schema, each fails with `ConfigurationInvalid`.
 */
export const statementsOn = (connection: TransactionConnection, schema: string): Statements =>
  Result.match(Connection.checkSchema(schema), {
    onSuccess: (name) => ({ query: queryOn(connection), schemaSql: Prisma.raw(Connection.quoted(name)) }),
    onFailure: (reason) => ({
      query: (operation) => Effect.fail(new ProviderError({ operation, reason })),
      schemaSql: Prisma.empty
    })
  })

export const queryOn =
  (connection: TransactionConnection): Statements["query"] => <Row>(operation: string, sql: Prisma.Sql) =>
    Effect.tryPromise({
      try: () => send(connection, sql) as Promise<ReadonlyArray<Row>>,
      catch: (thrown) => new ProviderError({ operation, reason: SqlFault.classify(thrown) })
    })

// internal

const send = async (connection: TransactionConnection, sql: Prisma.Sql): Promise<unknown> => {
  // As a template call: the client of the application may come from another Prisma, which does not know our `Sql`.
  if ("$queryRaw" in connection) {
    return connection.$queryRaw(Object.assign([...sql.strings], { raw: sql.strings }), ...sql.values)
  }
  return (await connection.query(sql.text, sql.values)).rows
}
