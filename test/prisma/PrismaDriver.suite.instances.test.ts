import { suite } from "../utils/prismaSuite.ts"

suite("multiExecution", "management", "deletion", "bulkDeletion", "prune")
