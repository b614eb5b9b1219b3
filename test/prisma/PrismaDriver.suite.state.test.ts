import { suite } from "../utils/prismaSuite.ts"

suite("attributes", "capabilityFiltering", "customStatus", "kvStore", "limits", "serving", "streams")
