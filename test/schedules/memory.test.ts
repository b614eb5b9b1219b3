import { outcomes } from "./utils/outcomes.ts"
import { memory } from "./utils/stores.ts"
import { suite } from "./utils/suite.ts"

suite("memory", memory)
outcomes("memory", memory)
