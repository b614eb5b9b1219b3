import { PgQueue } from "duroxide-prisma/prisma"
import { queues } from "./utils/tasks.ts"
import { taskSuite } from "./utils/taskSuite.ts"

taskSuite("PgQueue", PgQueue.layer({ queues }))
