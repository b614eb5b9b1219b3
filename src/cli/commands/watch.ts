import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Client from "../../Client.ts"
import * as KeyValue from "../../KeyValue.ts"
import { explain } from "../../model/shared/explained.ts"
import * as sealed from "../../model/shared/sealed.ts"
import { Provider } from "../../provider/Provider.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

export const watch = Command.make("watch", {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance")),
  keys: Flag.String("key").pipe(
    Flag.withMetavar("<key>"),
    Flag.withDescription("Also print the value of this key when it changes. May be repeated"),
    Flag.atLeast(0)
  ),
  after: Flag.String("after").pipe(
    Flag.withMetavar("<cursor>"),
    Flag.withDescription("Continue behind this cursor, which --json prints with each line"),
    Flag.optional
  )
}, (flags) => Effect.provide(run(flags), Store.layer)).pipe(
  Command.withShortDescription("Print what an instance shows of itself until it ends"),
  Command.withDescription(
    "Print the custom status of an instance, the values of its keys, and its end, each as soon as it is there. With " +
      "--json each of them is a JSON object on a line. Waits for the start of an id that is unknown as well."
  ),
  Command.withExamples([
    { command: "duroxide-prisma watch order-17 --key progress" }
  ])
)

// internal

const run = Effect.fnUntraced(function*({ after, id, keys }: {
  readonly id: string
  readonly keys: ReadonlyArray<string>
  readonly after: Option.Option<string>
}) {
  const { part, warn } = yield* Output
  if (Option.isNone(yield* (yield* Provider).readInstance(id))) {
    yield* warn(oneLine(`no instance ${id} is known: waiting for its start`))
  }
  const client = yield* Effect.provide(Client.Client, Client.layer)
  yield* Stream.runForEach(
    client.watch(id, {
      after: Option.getOrUndefined(after),
      keys: keys.map(asStored)
    }),
    (event) => part({ json: jsonOf(id, event), text: [oneLine(textOf(event))] })
  )
})

/** A value that is sealed is one here. */
const asStored = (key: string): KeyValue.KeyValue<typeof Schema.Unknown> => {
  const value = KeyValue.make(key, Schema.Unknown)
  const { codec } = value
  const decode = (text: string) => sealed.isSealed(text) ? Exit.succeed<unknown>(JSON.parse(text)) : codec.decode(text)
  return { ...value, codec: { ...codec, decode } }
}

type Event = Client.WatchEvent<unknown>

const jsonOf = (instanceId: string, event: Event) => {
  const { cursor } = event
  switch (event._tag) {
    case "Status":
      return { instanceId, customStatus: Option.getOrNull(event.status), version: event.version, cursor }
    case "Value":
      return { instanceId, key: event.key, value: Option.getOrNull(event.value), cursor }
    case "Ended": {
      const { status } = event
      const output = status._tag === "Completed" ? status.output : null
      return { instanceId, status: status._tag, output, error: errorOf(status), cursor }
    }
  }
}

const textOf = (event: Event): string => {
  switch (event._tag) {
    case "Status":
      return Option.getOrElse(event.status, () => "(no custom status)")
    case "Value":
      return `${event.key}: ${Option.match(event.value, { onNone: () => "(removed)", onSome: JSON.stringify })}`
    case "Ended": {
      const { status } = event
      return status._tag === "Completed" ? `Completed ${status.output}` : `${status._tag}: ${errorOf(status)}`
    }
  }
}

const errorOf = (status: Client.Ended): string | null =>
  status._tag === "Failed" ? explain(status.details) : status._tag === "Cancelled" ? status.reason : null
