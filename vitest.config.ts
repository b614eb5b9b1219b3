import { existsSync } from "node:fs"
import { availableParallelism } from "node:os"
import { fileURLToPath } from "node:url"
import { defineConfig } from "vitest/config"
import { writeModule } from "./scripts/prisma/migrationsModule.mjs"

// As scripts/ready.mjs does, for `npx vitest`. What the environment sets wins.
if (existsSync(".env")) process.loadEnvFile(".env")
writeModule()

const source = (path: string) => fileURLToPath(new URL(`./src/${path}`, import.meta.url))

export default defineConfig({
  resolve: {
    // Tests run the sources, whichever way they import them, so that no module is ever loaded twice.
    alias: [
      { find: /^duroxide-prisma$/, replacement: source("index.ts") },
      {
        find: /^duroxide-prisma\/(observability|outbox|prisma|provider|queue|server|sqlite|tasks|testing)$/,
        replacement: source("$1/index.ts")
      },
      { find: /^duroxide-prisma\/queue\/sqs$/, replacement: source("queue/sqs.ts") },
      { find: /^duroxide-prisma\/recipes\/(datasets|deliveries|triggers)$/, replacement: source("recipes/$1.ts") },
      { find: /^duroxide-prisma\/testing\/(provider|queue|tasks)$/, replacement: source("testing/$1.ts") }
    ]
  },
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/utils/globalSetup.ts"],
    setupFiles: ["test/utils/assertions.ts"],
    // A test waits for the server, or for time to pass, for a third of its length: three files at a time use two cores
    // well. All share one PostgreSQL, which more than four crowd.
    maxWorkers: Math.min(4, Math.max(3, availableParallelism() - 1)),
    // They only end what hangs. A test that takes 3 seconds alone takes half a minute on a machine that others use, too.
    testTimeout: 180_000,
    hookTimeout: 180_000
  }
})
