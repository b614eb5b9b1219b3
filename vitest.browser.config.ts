import { mergeConfig } from "vitest/config"
import { base, globalSetup } from "./vitest.config.ts"

/** The dashboard in a real browser, which must be installed; `npm run test:browser`. */
export default mergeConfig(base, {
  test: {
    globalSetup,
    include: ["test/browser/*.browser.ts"],
    testTimeout: 600_000,
    hookTimeout: 600_000,
    maxWorkers: 1
  }
})
