/**
 * What an examination of a server has found, and how a check that gets no answer becomes a finding as well.
 */
import * as Effect from "effect/Effect"
import type * as ProviderError from "../../../provider/ProviderError.ts"
import type * as MigrationError from "../../MigrationError.ts"
import { problemOf, unlessLost } from "../probes/probe.ts"

/** In the order in which they are shown. */
export type Area = "server" | "needed" | "optional" | "rights" | "settings" | "vacuum" | "indexes" | "listening"

/**
 * - `ok`: as it should be
 * - `advice`: everything works, and would work better, or more safely, with a change
 * - `problem`: something does not work, or acknowledged work may be lost, or waits
 * - `unknown`: the login may not look, or the server does not answer
 */
export type Result = "ok" | "advice" | "problem" | "unknown"

export interface Answer {
  readonly name: string
  readonly result: Result
  /** One sentence of what is true, with the value. */
  readonly found: string
  /** One sentence of what to do; null if nothing is to be done. */
  readonly todo: string | null
}

export interface Finding extends Answer {
  readonly area: Area
}

export const ok = (name: string, found: string): Answer => ({ name, result: "ok", found, todo: null })

export const advice = (name: string, found: string, todo: string): Answer => ({ name, result: "advice", found, todo })

export const problem = (name: string, found: string, todo: string): Answer => ({ name, result: "problem", found, todo })

export const unknown = (name: string, found: string, todo: string | null = null): Answer => ({
  name,
  result: "unknown",
  found,
  todo
})

/** A check fails only with the connection: a refusal of the server is an answer, of which nothing is known. */
export const check = <R>(
  name: string,
  answers: Effect.Effect<Answer | ReadonlyArray<Answer>, ProviderError.Reason, R>
): Effect.Effect<ReadonlyArray<Answer>, ProviderError.Reason, R> =>
  unlessLost(Effect.map(answers, (answer) => [answer].flat()), (reason) => [unknown(name, refusalOf(reason))])

/** The error of the server, without the advice that its reason has for other places. */
export const refusalOf = (reason: MigrationError.Reason): string =>
  reason._tag === "PermissionDenied" ? `this login may not look: ${reason.problem}` : `no answer: ${problemOf(reason)}`
