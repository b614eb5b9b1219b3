/**
 * What the dashboard stands on: a `PrismaProvider` has all of it.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Scope from "effect/Scope"
import type { Client } from "../../Client.ts"
import type * as PrismaProvider from "../../prisma/PrismaProvider.ts"
import type { Schedules } from "../../schedules/Schedules.ts"
import type { Tasks } from "../../tasks/Tasks.ts"

export type Services = PrismaProvider.Services | Client | Tasks | Schedules

/** Gives the services of the layer to its requests, without its scope, as each request has one of its own. */
export const ofLayer = Effect.map(Effect.context<Services>(), Context.omit(Scope.Scope))
