import { mergeConfig } from "vitest/config"
import { base, globalSetup } from "./vitest.config.ts"

/** What installs much from npm's registry: bundlers, frameworks and other versions of Node; `npm run test:package`. */
export default mergeConfig(base, {
  test: {
    globalSetup: [...globalSetup, "test/package/tarball.ts"],
    include: ["test/package/*.check.ts"],
    testTimeout: 600_000,
    hookTimeout: 600_000,
    maxWorkers: 2,
    // Of each file: most of the time npm works, or waits for its registry.
    maxConcurrency: 2
  }
})
