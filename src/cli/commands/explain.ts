import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import { Admin } from "../../provider/Admin.ts"
import { isoTime, placeJson } from "../internal/instances.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

export const explain = Command.make("explain", {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance"))
}, (flags) => Effect.provide(run(flags), Store.layer)).pipe(
  Command.withShortDescription("Say in a sentence why an instance does not continue"),
  Command.withDescription(
    "Say in a sentence why an instance does not continue: what it waits for and since when, who could continue it, what " +
      "happens next. \"show\" has the details."
  ),
  Command.withExamples([{ command: "duroxide-prisma explain order-17" }])
)

// internal

const run = Effect.fnUntraced(function*({ id }: { readonly id: string }) {
  const { cause, instanceId, interruption, sentence, status, waits } = yield* (yield* Admin).explain(id)
  const { answer } = yield* Output
  const { _tag, ...parts } = cause
  yield* answer({
    json: {
      instanceId,
      status,
      sentence,
      cause: _tag,
      ...parts,
      waits: waits.map(({ eventId, instanceId, kind, name, place, sinceMs, tag }) => ({
        kind,
        name,
        instanceId,
        tag,
        eventId,
        since: isoTime(sinceMs),
        ...placeJson(place)
      })),
      interrupted: interruption === null ? null : { since: isoTime(interruption.sinceMs), reason: interruption.reason }
    },
    text: [oneLine(sentence)]
  })
})
