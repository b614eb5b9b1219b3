import { suite } from "../utils/prismaSuite.ts"

suite("multiExecution", "management", "queueViews", "deletion", "bulkDeletion", "prune")
