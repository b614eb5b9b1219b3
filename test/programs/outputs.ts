// A task whose output is its attempt: written to the table `outputs` in its own transaction, or returned.
import { Task } from "duroxide-prisma/tasks"
import * as Schema from "effect/Schema"

export const Output = Task.make("Output", {
  payload: { isTransaction: Schema.Boolean },
  success: Schema.Number,
  lease: "1 second"
})

/** Ends its worker if it is guilty. */
export const Crowd = Task.make("Crowd", {
  payload: { isGuilty: Schema.Boolean },
  lease: "1 second",
  retry: { maxAttempts: 4 }
})
