/**
 * What the dashboard stands on: a `PrismaProvider` has all of it.
 */
import type { Client } from "../../Client.ts"
import type * as PrismaProvider from "../../prisma/PrismaProvider.ts"
import type { Tasks } from "../../tasks/Tasks.ts"

export type Services = PrismaProvider.Services | Client | Tasks
