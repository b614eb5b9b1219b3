/**
 * What the services have in common as processes.
 */
import { Effect } from "effect"

/** Reports the port to the parent, if it is a Node process, and keeps this one running until it is stopped. */
export const ready = (port = 0): Effect.Effect<never> =>
  Effect.logInfo(port === 0 ? "ready" : `ready on port ${port}`).pipe(
    Effect.andThen(Effect.sync(() => process.send?.({ port }))),
    Effect.andThen(Effect.never)
  )

export const health = () => Effect.succeed(Response.json({ status: "healthy" }))
