// A task whose output is its attempt: written to the table `outputs` in its own transaction, or returned.
import { Task } from "duroxide-prisma/queue"
import * as Schema from "effect/Schema"

export const Output = Task.make("Output", {
  payload: { isTransaction: Schema.Boolean },
  success: Schema.Number,
  lease: "1 second"
})
