/**
 * A try of something that a server may lack: in a transaction that is rolled back, with objects that exist only there.
 * It leaves nothing, and needs no migration.
 */
import * as Effect from "effect/Effect"
import type * as ProviderError from "../../../provider/ProviderError.ts"
import type * as MigrationError from "../../MigrationError.ts"
import type * as Session from "../../shared/directSession.ts"

export interface Probe {
  readonly name: string
  /** What of this package uses it, for people. */
  readonly use: string
  /** What runs without it; undefined if nothing does. */
  readonly without?: string
  /** What it means that it does not work. */
  readonly missing?: string
  /** A server that refuses the try may still have it. */
  readonly isIndirect?: boolean
  /** Whether it creates objects. */
  readonly creates: boolean
  /** Whether it works, in a transaction of the caller. `schema` is where it may create objects, quoted. */
  readonly works: (sessions: Pair, schema: string) => Effect.Effect<boolean, ProviderError.Reason>
}

/** Two sessions on one server. */
export interface Pair {
  readonly one: Session.Session
  readonly other: Session.Session
}

/** A probe of statements that create objects; the last one selects whether it `works`. */
export const creating = (name: string, use: string, steps: (schema: string) => ReadonlyArray<string>): Probe => ({
  name,
  use,
  creates: true,
  works: statements(steps)
})

/** A probe of one statement, which selects whether it `works`. */
export const reading = (name: string, use: string, step: string): Probe => ({
  name,
  use,
  creates: false,
  works: statements(() => [step])
})

/** A lock that no other try takes. */
export const lockName = () => `duroxide_prisma.probe ${globalThis.crypto.randomUUID()}`

/** `isDenied`: the role has no right to try, and the server may have it. */
export type Tried = "works" | "differs" | { readonly refused: string; readonly isDenied: boolean }

/** `prepared` creates the schema, if that has to be done. Fails only if the connection is lost. */
export const tryOut = (
  { works }: Probe,
  sessions: Pair,
  schema: string,
  prepared = ""
): Effect.Effect<Tried, ProviderError.Reason> => {
  const { one: { run } } = sessions
  return unlessLost(
    Effect.gen(function*(): Effect.fn.Return<Tried, ProviderError.Reason> {
      yield* run(`BEGIN; ${prepared}`)
      return (yield* works(sessions, schema)) ? "works" : "differs"
    }),
    (reason): Tried => ({ refused: problemOf(reason), isDenied: reason._tag === "PermissionDenied" })
  ).pipe(Effect.ensuring(Effect.ignore(run("ROLLBACK"))))
}

/** Handles the reasons that the server has answered with. */
export const unlessLost = <A, B, R>(
  effect: Effect.Effect<A, MigrationError.Reason, R>,
  handled: (reason: MigrationError.Reason) => B
): Effect.Effect<A | B, ProviderError.Reason, R> =>
  Effect.catch(effect, (reason) => isLost(reason) ? Effect.fail(reason) : Effect.succeed(handled(reason)))

/** What the server has said. */
export const problemOf = (reason: MigrationError.Reason): string =>
  "problem" in reason ? reason.problem : reason.message

// internal

const statements = (steps: (schema: string) => ReadonlyArray<string>): Probe["works"] =>
  Effect.fnUntraced(function*({ one }, schema) {
    let works: unknown
    for (const step of steps(schema)) works = (yield* one.run(step))[0]?.["works"]
    return works === true
  })

type Lost = Extract<ProviderError.Reason, { readonly _tag: "ConnectionLost" | "AuthenticationFailed" | "Closed" }>

const isLost = (reason: MigrationError.Reason): reason is Lost =>
  reason._tag === "ConnectionLost" || reason._tag === "AuthenticationFailed" || reason._tag === "Closed"
