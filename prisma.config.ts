/**
 * Where the Prisma CLI finds the schema, the migrations and the database (`DATABASE_URL`).
 *
 * The CLI downloads a native schema engine at its first start. With `PRISMA_OFFLINE=1` it runs the one in
 * `scripts/prisma/schema-engine.mjs` instead, which needs nothing but the packages already installed.
 */
import { fileURLToPath } from "node:url"
import { defineConfig } from "prisma/config"

if (process.env.PRISMA_OFFLINE === "1") {
  process.env.PRISMA_SCHEMA_ENGINE_BINARY ??= fileURLToPath(
    new URL("./scripts/prisma/schema-engine.mjs", import.meta.url)
  )
  // The CLI's other attempts to reach the network.
  process.env.CHECKPOINT_DISABLE ??= "1"
  process.env.PRISMA_HIDE_UPDATE_MESSAGE ??= "1"
}

export default defineConfig({
  schema: "prisma/schema.prisma",
  migrations: { path: "prisma/migrations" },
  datasource: { url: process.env.DATABASE_URL ?? "" }
})
