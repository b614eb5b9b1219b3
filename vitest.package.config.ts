import { mergeConfig } from "vitest/config"
import { base, globalSetup } from "./vitest.config.ts"

/** What installs much from npm's registry: bundlers, frameworks and other versions of Node; `npm run test:package`. */
export default mergeConfig(base, {
  test: { globalSetup, include: ["test/package/*.check.ts"], testTimeout: 600_000, hookTimeout: 600_000, maxWorkers: 2 }
})
