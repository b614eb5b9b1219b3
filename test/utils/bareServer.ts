/**
 * A server that has only what this package needs: no notifications, no locks of sessions, no storage parameters, no
 * triggers for statements, no locks of tables. Others may speak PostgreSQL so.
 *
 * What is a function of the server is replaced in each database; a proxy refuses the rest.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type * as pg from "pg"
import * as RefusingProxy from "./refusingProxy.ts"

/** `npm run test:bare` sets it for a run. */
export const isWanted = process.env.TEST_SERVER === "bare"

/** The URL of the server without what statements ask for; until the scope ends. */
export const inFrontOf = (url: string): Effect.Effect<string, never, Scope.Scope> =>
  RefusingProxy.inFrontOf(
    url,
    RefusingProxy.refuse(
      /(?:^|; )LISTEN /,
      /\bautovacuum_vacuum_threshold = 1000\b/,
      /\bFOR EACH STATEMENT\b/,
      /^LOCK TABLE .* IN EXCLUSIVE MODE/m
    )
  )

/** Takes the functions from the database of a superuser, and so from its clones. */
export const strip = (client: pg.Client): Effect.Effect<void> =>
  Effect.forEach(functions, ([name, parameters]) =>
    Effect.promise(() =>
      client.query(
        `ALTER FUNCTION pg_catalog.${name}(${parameters}) RENAME TO ${name}_of_postgresql;
         CREATE FUNCTION pg_catalog.${name}(${parameters}) RETURNS void LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION '${name} is not supported here' USING ERRCODE = 'feature_not_supported'; END $$`
      )
    ), { discard: true })

// internal

const functions = [
  ["pg_notify", "text, text"],
  ["pg_advisory_lock", "bigint"],
  ["pg_advisory_lock_shared", "bigint"]
] as const
