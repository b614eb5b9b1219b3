import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { isoTime, time } from "../../operating/times.ts"
import { Admin } from "../../provider/Admin.ts"
import { Output } from "../internal/Output.ts"
import * as Paging from "../internal/paging.ts"
import * as Store from "../internal/store.ts"
import { fitted } from "../internal/table.ts"

export const audit = Command.make("audit", {
  cursor: Paging.cursor,
  limit: Paging.limitOf("actions")
}, (flags) => Effect.provide(run(flags), Store.layer)).pipe(
  Command.withShortDescription("List who did what"),
  Command.withDescription(
    "List what operators did, the newest first: who, when, with which instance, queue or definition, and whether it was " +
      "done. Tools record it with Admin.recordAction; commands of this program do not."
  ),
  Command.withExamples([
    { command: "duroxide-prisma audit --limit 100 --json", description: "For programs: the actions, and a cursor" }
  ])
)

// internal

const run = Effect.fnUntraced(function*({ cursor, limit }: {
  readonly cursor: Option.Option<string>
  readonly limit: number
}) {
  const { answer, columns, style } = yield* Output
  const { actions, next } = yield* (yield* Admin).listActions({ cursor: Option.getOrUndefined(cursor), limit })
  yield* answer({
    json: { actions: actions.map(({ atMs, ...action }) => ({ ...action, at: isoTime(atMs) })), next },
    text: actions.length === 0 ? ["no actions"] : [
      ...fitted(
        actions,
        [
          { title: "AT", value: ({ atMs }) => time(atMs) },
          { title: "ACTOR", value: ({ actor }) => actor },
          { title: "ACTION", value: ({ action }) => action },
          { title: "TARGET", value: ({ target }) => target },
          {
            title: "OUTCOME",
            value: ({ outcome }) => outcome,
            mark: ({ outcome }, text) => outcome === "done" ? style.green(text) : style.red(text)
          },
          { title: "DETAILS", shrinks: "end", value: ({ details }) => details }
        ],
        style,
        columns
      ),
      ...(next === null ? [] : ["", `More follow: repeat the command with --cursor ${next}`])
    ]
  })
})
