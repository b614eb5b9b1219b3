import { suite } from "../utils/prismaSuite.ts"

suite("optimisticTurns", "firstTurns", "handover")
