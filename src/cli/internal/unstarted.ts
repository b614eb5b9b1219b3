/**
 * Ids that were not started, though messages wait for them.
 */
import * as Effect from "effect/Effect"
import { counted } from "../../model/shared/quantities.ts"
import { Admin } from "../../provider/Admin.ts"
import { ProviderError } from "../../provider/ProviderError.ts"
import { messageOf } from "../../provider/shared/openWaits.ts"
import { CommandError } from "./failure.ts"

/** Where the instance is not found, says which messages wait for its start. */
export const orMessages = (id: string) =>
<A, E, R>(
  read: Effect.Effect<A, E | ProviderError, R>
): Effect.Effect<A, E | ProviderError | CommandError, R | Admin> =>
  Effect.catchIf(read, isNotFound, (error) =>
    Effect.gen(function*() {
      const { messages } = yield* (yield* Admin).getQueuedWork(id)
      if (messages.length === 0) return yield* Effect.fail(error)
      const named = messages.slice(0, mostNamed).map(messageOf).map(({ kind, name }) =>
        name === null ? kind : `${kind} ${name}`
      )
      return yield* new CommandError({
        code: "InstanceNotFound",
        message: `instance ${id} has not been started; ${
          counted(messages.length, "message waits", "messages wait")
        } for it: ${named.join(", ")}${messages.length > mostNamed ? ", …" : ""}`,
        exit: "no"
      })
    }))

// internal

const mostNamed = 5

const isNotFound = (error: unknown): error is ProviderError =>
  error instanceof ProviderError && error.reason._tag === "InstanceNotFound"
