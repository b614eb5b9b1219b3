import { mergeConfig } from "vitest/config"
import { quickTests } from "./test/utils/quickTests.ts"
import config from "./vitest.config.ts"

/** What needs this process alone, `npm run test:quick`. Without the global setup there is no server to ask for. */
export default mergeConfig({ ...config, test: { ...config.test, include: [], globalSetup: [] } }, {
  test: { include: [...quickTests()], maxWorkers: 2 }
})
