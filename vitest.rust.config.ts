import { mergeConfig } from "vitest/config"
import config from "./vitest.config.ts"

/** What needs the binary of duroxide; `npm run test:rust` installs it first. */
export default mergeConfig({ ...config, test: { ...config.test, include: [] } }, {
  test: { include: ["test/rust/*.check.ts"] }
})
