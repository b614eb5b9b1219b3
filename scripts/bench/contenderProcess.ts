/**
 * A process of one contender: `node contenderProcess.js <module>`, directed by messages from the bench.
 *
 * It answers `Open` with `Opened`, and `Drive` with `Began` and `Ended`; after `Close` it ends.
 */
import { pathToFileURL } from "node:url"
import type { Contender, Open, Options, Sample } from "./contender.ts"
import { drive } from "./drive.ts"
import type { Window } from "./drive.ts"
import { recordProfile } from "./profile.ts"

export type Order =
  | { readonly _tag: "Open"; readonly options: Options }
  /** With `profile`, the CPU profile of the window is written to that file. */
  | { readonly _tag: "Drive"; readonly window: Window; readonly profile: string | undefined }
  | { readonly _tag: "Close" }

export type Answer =
  | { readonly _tag: "Opened" }
  | { readonly _tag: "Began" }
  | { readonly _tag: "Ended"; readonly sample: Sample }
  | { readonly _tag: "Failed"; readonly problem: string }

const { open } = await import(pathToFileURL(process.argv[2]!).href) as { readonly open: Open }
let opened: { readonly contender: Contender; readonly options: Options } | undefined

const answer = (message: Answer) => process.send!(message)

const obey = async (order: Order): Promise<void> => {
  switch (order._tag) {
    case "Open":
      opened = { contender: await open(order.options), options: order.options }
      return void answer({ _tag: "Opened" })
    case "Drive": {
      let endProfile = () => {}
      return drive(
        opened!.contender,
        opened!.options.load,
        order.window,
        () => {
          if (order.profile !== undefined) endProfile = recordProfile(order.profile)
          answer({ _tag: "Began" })
        },
        (sample) => {
          endProfile()
          answer({ _tag: "Ended", sample })
        }
      )
    }
    case "Close":
      await driving
      await opened?.contender.close()
      process.exit(0)
  }
}

let driving: Promise<void> = Promise.resolve()
process.on("message", (order: Order) => {
  const done = obey(order).catch((error: unknown) => {
    answer({ _tag: "Failed", problem: error instanceof Error ? error.stack ?? error.message : String(error) })
  })
  if (order._tag === "Drive") driving = done
})
// The bench is gone.
process.on("disconnect", () => process.exit(1))
