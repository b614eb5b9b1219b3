import { mergeConfig } from "vitest/config"
import { base, globalSetup } from "./vitest.config.ts"

/** What needs a PgBouncer on the machine; `npm run test:pgbouncer` looks for one first. */
export default mergeConfig(base, {
  test: { globalSetup, include: ["test/pgbouncer/*.check.ts"] }
})
