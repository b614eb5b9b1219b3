/** Our provider, woken or polling. */
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Notifier } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Load } from "./contender.ts"

export const storeOf = ({ pollMs, ...options }: PrismaProvider.Options & Pick<Load, "pollMs">) =>
  pollMs === null
    ? PrismaProvider.layer(options)
    : PrismaProvider.layer({ ...options, longPolling: { aggressivePollInterval: pollMs } }).pipe(
      Layer.provide(Notifier.layer(silent))
    )

// internal

/** Never connects, so that each queue is polled. */
const silent = Notifier.Notifier.of({ name: "none", listen: () => Effect.void, announce: () => Effect.void })
