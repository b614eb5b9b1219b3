import type { Layout, Manifest } from "../../src/prisma/internal/migration.ts"

export function manifestOf(sql: string): Manifest
export function layoutOf(sql: string): Layout
