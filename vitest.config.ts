import { existsSync } from "node:fs"
import { availableParallelism } from "node:os"
import { fileURLToPath } from "node:url"
import { defineConfig, mergeConfig } from "vitest/config"
import { writeModule } from "./scripts/prisma/migrationsModule.mjs"
import { quickTests } from "./test/utils/quickTests.ts"
import { SlowFirst } from "./test/utils/slowFirst.ts"

// As scripts/ready.mjs does, for `npx vitest`. What the environment sets wins.
if (existsSync(".env")) process.loadEnvFile(".env")
writeModule()

const source = (path: string) => fileURLToPath(new URL(`./src/${path}`, import.meta.url))

if (!existsSync(source("prisma/generated/client.ts"))) {
  console.error(
    `The Prisma client is not generated yet: run "npm run ready" first, or a script of npm such as "npm test"`
  )
  process.exit(1)
}

/** What every test runs with; the configurations beside this one add what they run. */
export const base = defineConfig({
  resolve: {
    // Tests run the sources, whichever way they import them, so that no module is ever loaded twice.
    alias: [
      { find: /^duroxide-prisma$/, replacement: source("index.ts") },
      {
        find:
          /^duroxide-prisma\/(agents|dashboard|observability|outbox|prisma|provider|queue|schedules|server|sqlite|tasks|testing)$/,
        replacement: source("$1/index.ts")
      },
      { find: /^duroxide-prisma\/queue\/sqs$/, replacement: source("queue/sqs.ts") },
      {
        find: /^duroxide-prisma\/recipes\/(completions|datasets|deliveries|triggers)$/,
        replacement: source("recipes/$1.ts")
      },
      { find: /^duroxide-prisma\/testing\/(provider|queue|schedules|tasks)$/, replacement: source("testing/$1.ts") }
    ]
  },
  test: {
    setupFiles: ["test/utils/assertions.ts", "test/utils/serverLog.ts"],
    sequence: { sequencer: SlowFirst },
    // A test waits for the server, or for time to pass, for a third of its length: three files at a time use two cores
    // well. All share one PostgreSQL, which more than four crowd.
    maxWorkers: Math.min(4, Math.max(3, availableParallelism() - 1)),
    // They only end what hangs. A test that takes 3 seconds alone takes half a minute on a machine that others use, too.
    testTimeout: 180_000,
    hookTimeout: 180_000
  }
})

/** The one server of all tests that ask for it. */
export const globalSetup = ["test/utils/globalSetup.ts"]

const quick = quickTests().filter((file) => !file.endsWith(".long.test.ts"))
const long = "test/**/*.long.test.ts"

export default mergeConfig(base, {
  test: {
    projects: [
      // Needs no server, so it has none to ask for. Loading the modules again takes longer than most files.
      { extends: true, test: { name: "quick", include: quick, isolate: false } },
      {
        extends: true,
        test: { name: "server", globalSetup, include: ["test/**/*.test.ts"], exclude: [...quick, long], isolate: false }
      },
      // Crashes, chaos, outages, races, random models, migrations, command lines and large tables, where a run takes
      // minutes or gains by repetition.
      {
        extends: true,
        test: { name: "long", globalSetup, include: [long], testTimeout: 600_000, hookTimeout: 600_000, isolate: false }
      }
    ]
  }
})
