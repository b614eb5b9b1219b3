import * as Command from "effect/cli/Command"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { age, counted } from "../../model/shared/quantities.ts"
import { isoTime } from "../../operating/times.ts"
import { Admin } from "../../provider/Admin.ts"
import { messageOf } from "../../provider/shared/openWaits.ts"
import { Output } from "../internal/Output.ts"
import * as Paging from "../internal/paging.ts"
import * as Store from "../internal/store.ts"
import { table } from "../internal/table.ts"

export const orphans = Command.make("orphans", {
  limit: Paging.limitOf("messages")
}, (flags) => Effect.provide(run(flags), Store.layer)).pipe(
  Command.withShortDescription("List messages whose instance has not been started"),
  Command.withDescription(
    "List messages whose instance has not been started, the oldest first: a signal was sent early, or to a wrong id. " +
      "They wait for a start, and are deleted after orphanRetention, 7 days by default."
  ),
  Command.withExamples([{
    command: "duroxide-prisma queues orphans",
    description: "Signals to ids with a typing error"
  }])
)

// internal

const run = Effect.fnUntraced(function*({ limit }: { readonly limit: number }) {
  const { answer, style } = yield* Output
  const admin = yield* Admin
  const all = yield* admin.countMessagesBeforeStart
  const found = (yield* admin.listMessagesBeforeStart({ limit })).map((message) => ({
    ...messageOf(message),
    instanceId: message.instanceId
  }))
  const nowMs = yield* Clock.currentTimeMillis
  yield* answer({
    json: {
      orphans: all,
      messages: found.map(({ instanceId, kind, name, place }) => ({
        instanceId,
        kind,
        name,
        since: isoTime(place.visibleAtMs)
      }))
    },
    text: found.length === 0
      ? ["no messages wait for a start"]
      : [
        ...table(found, [
          { title: "INSTANCE", value: ({ instanceId }) => instanceId },
          { title: "MESSAGE", value: ({ kind, name }) => name === null ? kind : `${kind} ${name}` },
          { title: "SENT", value: ({ place }) => `${age(nowMs - place.visibleAtMs)} ago` }
        ], style),
        ...(all > found.length ? ["", `and ${counted(all - found.length, "other", "others")}`] : [])
      ]
  })
})
