/**
 * The storage contract over plain data and `Clock`: for tests in virtual time, and as the contract's second statement.
 *
 * Nothing survives the process, and only one process can use it. Every operation is one synchronous step, so what a
 * database needs locks for holds by itself; locks, visibility, attempts and order are those of the contract. The
 * operations are in `memory`, one file per queue.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { AdminDriver } from "./AdminDriver.ts"
import * as driver from "./memory/driver.ts"
import * as tables from "./memory/tables.ts"
import type { ProviderDriver } from "./ProviderDriver.ts"

/**
 * An empty store.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (): ProviderDriver["Service"] => driver.make(tables.make())

/**
 * An empty store for as long as the layer lives.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<ProviderDriver | AdminDriver> = Layer.unwrap(
  Effect.sync(() => driver.layer(tables.make()))
)
