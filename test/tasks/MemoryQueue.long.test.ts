import { MemoryQueue } from "duroxide-prisma/queue"
import { queues } from "./utils/tasks.ts"
import { taskSuite } from "./utils/taskSuite.ts"

taskSuite("MemoryQueue", MemoryQueue.layer({ queues }))
