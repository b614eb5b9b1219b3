import { suite } from "../utils/prismaSuite.ts"

suite("starts", "multiExecution", "management", "queueViews", "deletion", "bulkDeletion", "prune")
