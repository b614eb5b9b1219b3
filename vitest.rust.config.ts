import { mergeConfig } from "vitest/config"
import { base, globalSetup } from "./vitest.config.ts"

/** What needs the binary of duroxide; `npm run test:rust` installs it first. */
export default mergeConfig(base, {
  test: { globalSetup, include: ["test/rust/*.check.ts"] }
})
