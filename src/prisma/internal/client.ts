/**
 * The generated Prisma client, from its parts.
 *
 * Prisma's own entry file, `generated/client.ts`, sets a global `__dirname` in the application from `import.meta.url`,
 * which a bundle in CommonJS does not have. Nothing here needs a folder.
 */
import { getPrismaClientClass, type PrismaClient as Client } from "../generated/internal/class.js"

export * as Prisma from "../generated/internal/prismaNamespace.js"

export const PrismaClient = getPrismaClientClass()
export type PrismaClient = Client
