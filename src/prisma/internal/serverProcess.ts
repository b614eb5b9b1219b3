/**
 * The process of the server that has a session. A pooler names one of its own at the login.
 */
import * as Predicate from "effect/Predicate"

export const query = "SELECT pg_backend_pid() AS pid"

/** The number that a client of `pg` got at its login. */
export const of = (client: unknown): { readonly processID: unknown } => ({
  processID: Predicate.hasProperty(client, "processID") ? client.processID : undefined
})

/** Whether the client has logged in at the process with this number. */
export const isThat = (client: unknown, pid: unknown): boolean => of(client).processID === Number(pid)
