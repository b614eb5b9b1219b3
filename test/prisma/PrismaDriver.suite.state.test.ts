import { suite } from "../utils/prismaSuite.ts"

suite("capabilityFiltering", "customStatus", "kvStore", "serving")
