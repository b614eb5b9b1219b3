import { PgQueue } from "duroxide-prisma/prisma"
import { limitSuite } from "./utils/limitSuite.ts"
import { queues } from "./utils/tasks.ts"

limitSuite("PgQueue", PgQueue.layer({ queues }))
