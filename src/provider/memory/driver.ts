/**
 * Both drivers over the same tables.
 */
import * as Context from "effect/Context"
import * as Layer from "effect/Layer"
import { AdminDriver } from "../AdminDriver.ts"
import { ProviderDriver } from "../ProviderDriver.ts"
import * as activities from "./activities.ts"
import * as admin from "./admin.ts"
import * as claims from "./claims.ts"
import * as messages from "./messages.ts"
import * as processes from "./processes.ts"
import * as reads from "./reads.ts"
import * as streams from "./streams.ts"
import type { Tables } from "./tables.ts"
import * as turns from "./turns.ts"
import * as unclaimedTurns from "./unclaimedTurns.ts"

export const make = (store: Tables): ProviderDriver["Service"] =>
  ProviderDriver.of({
    name: "memory",
    ...claims.make(store),
    ...turns.make(store),
    ...unclaimedTurns.make(store),
    ...messages.make(store),
    ...activities.make(store),
    ...processes.make(store),
    ...streams.make(store),
    ...reads.make(store)
  })

/** Over tables that tests look into, too. */
export const layer = (store: Tables): Layer.Layer<ProviderDriver | AdminDriver> =>
  Layer.succeedContext(
    Context.make(ProviderDriver, make(store)).pipe(Context.add(AdminDriver, admin.make(store)))
  )
