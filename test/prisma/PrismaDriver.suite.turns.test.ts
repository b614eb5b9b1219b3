import { suite, suiteWithoutOptimisticTurns } from "../utils/prismaSuite.ts"

suite("optimisticTurns", "firstTurns", "handover")

suiteWithoutOptimisticTurns("optimisticTurns", "firstTurns")
