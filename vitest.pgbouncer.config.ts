import { mergeConfig } from "vitest/config"
import config from "./vitest.config.ts"

/** What needs a PgBouncer on the machine; `npm run test:pgbouncer` looks for one first. */
export default mergeConfig({ ...config, test: { ...config.test, include: [] } }, {
  test: { include: ["test/pgbouncer/*.check.ts"] }
})
