import { suite } from "../utils/prismaSuite.ts"

suite("attributes", "capabilityFiltering", "customStatus", "kvStore", "instanceLimits", "limits", "serving", "streams")
