/**
 * A driver without what the contract leaves to the driver: it stores no turn without a claim, and hands nothing over.
 */
import { ProviderDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Struct from "effect/Struct"

type Service = ProviderDriver.ProviderDriver["Service"]

export const withoutOptimisticTurns = (driver: Service): Service => ({
  ...Struct.omit(driver, ["advanceOrchestrations"]),
  startOrchestrations: (starts) => driver.startOrchestrations(starts.map((start) => Struct.omit(start, ["firstTurn"])))
})

/** Puts it in front of the driver below. */
export const layerWithoutOptimisticTurns: Layer.Layer<
  ProviderDriver.ProviderDriver,
  never,
  ProviderDriver.ProviderDriver
> = Layer.effect(
  ProviderDriver.ProviderDriver,
  Effect.map(ProviderDriver.ProviderDriver, withoutOptimisticTurns)
)
