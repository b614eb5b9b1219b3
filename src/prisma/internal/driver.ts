/**
 * The storage contract on PostgreSQL: an operation calls one stored function (`prisma/functions`) in one statement,
 * which is its own transaction.
 *
 * The operations stand in the folder `driver`; `statements.ts` sends their calls, and `rows.ts` encodes arguments and
 * maps rows. The head of each function states what it does to the tables, in which order it locks, and the bound of its
 * work.
 */
import type { TransactionConnection } from "../../model/shared/transactionConnection.ts"
import { ProviderDriver } from "../../provider/ProviderDriver.ts"
import { activities } from "./driver/activities.ts"
import * as calls from "./driver/calls.ts"
import { orchestrations } from "./driver/orchestrations.ts"
import { processes } from "./driver/processes.ts"
import { reads } from "./driver/reads.ts"
import { streams } from "./driver/streams.ts"
import * as statements from "./statements.ts"
import { queryOn } from "./transactionQuery.ts"

export const make = (connection: statements.Connection, options?: statements.Options): ProviderDriver["Service"] => {
  const send = calls.make(statements.make(connection, options))
  return ProviderDriver.of({
    name: "prisma",
    ...orchestrations(send),
    ...activities(send, within(connection, options)),
    ...processes(send),
    ...reads(send),
    ...streams(send)
  })
}

// internal

/** A connection of the application cannot join transactions of others. */
const within = ({ address, schema, schemaSql }: statements.Connection, options?: statements.Options) => {
  if (address === undefined || schema === undefined) return undefined
  const on = (connection: TransactionConnection) =>
    statements.make({ address, schema, schemaSql, query: queryOn(connection) }, options)
  return Object.assign(on, { isQuiet: options?.isQuiet === true })
}
