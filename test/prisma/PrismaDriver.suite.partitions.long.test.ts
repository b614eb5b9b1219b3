import { partitionedSuite } from "../utils/prismaSuite.ts"

partitionedSuite("atomicity", "multiExecution", "prune", "optimisticTurns", "firstTurns")
