/**
 * Commands that do the same to many items: instances or tasks.
 *
 * They show what they will do, and ask. Stopped half way, the same command takes up the rest.
 */
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { count, counted } from "../../model/shared/quantities.ts"
import * as Bulk from "../../operating/bulk.ts"
import type { Item, Tally } from "../../operating/bulk.ts"
import type { Refusal as Refused } from "../../operating/Refusal.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { CommandError } from "./failure.ts"
import { noLessThan } from "./numbers.ts"
import { Output } from "./Output.ts"
import * as Progress from "./Progress.ts"
import { oneLine } from "./table.ts"

export const flags = {
  limit: Flag.Int("limit").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("Most to take. Defaults to all that match"),
    noLessThan(1),
    Flag.optional
  ),
  dryRun: Flag.Boolean("dry-run").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Change nothing: only say how many there are, and name the first ones"),
    Flag.withDefault(false)
  ),
  yes: Flag.Boolean("yes").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Do not ask for a confirmation"),
    Flag.withDefault(false)
  )
}

/** What the flags above say. */
export interface Flags {
  readonly limit: Option.Option<number>
  readonly dryRun: boolean
  readonly yes: boolean
}

/** What is done to each item, in words. */
export interface Words {
  readonly verb: string
  readonly done: string
  readonly noun: "instance" | "task" | "message"
  /** What the sentence about the outcome ends with. Defaults to nothing. */
  readonly outcome?: string
}

/** What is done to each item. */
export interface Action<R, R2> extends Words {
  /** Whether it asks about items that are named. Defaults to false. */
  readonly asksAboutNamed?: boolean
  /** Fails if the item of this id cannot be taken. Those that a filter selects are not looked at again. */
  readonly check: (id: string) => Effect.Effect<void, Refusal, R>
  readonly run: (id: string) => Effect.Effect<void, Refusal, R2>
  /** What it would come to, for a dry run and who is asked. `json` are fields of the answer. */
  readonly foresee?: <E, R3>(
    items: Stream.Stream<Item, E, R3>,
    total: number
  ) => Effect.Effect<Foreseen, E | Refusal, R | R3>
}

export interface Foreseen {
  readonly json: object
  /** Lines for people. */
  readonly text: ReadonlyArray<string>
}

/** What a command stops at, or counts, if it is about one item alone. */
export type Refusal = ProviderError | Refused | CommandError

/** Asks, unless `yes`; fails if the answer is no, or if there is no one to answer. */
export const confirm = Effect.fnUntraced(function*(question: string, yes: boolean) {
  if (yes) return
  yield* canConfirm
  if (yield* (yield* Output).ask(`${oneLine(question)}?`)) return
  return yield* new CommandError({ code: "Unconfirmed", message: "not confirmed: nothing was changed", exit: "no" })
})

/** Says how far it came, where an error that all items would meet stops it, or Ctrl-C. */
export const stopping = <A, E, R>(
  all: Effect.Effect<A, E, R>,
  { done, noun }: Words,
  soFar: () => Pick<Tally, "done" | "open">
): Effect.Effect<A, E | CommandError, R | Output> => {
  const howFar = () => {
    const { done: number, open } = soFar()
    return `${done} ${counted(number, noun)} so far${open === 0 ? "" : `, and perhaps ${count(open)} more`}. ` +
      "Run the same command again: it takes up those that are left"
  }
  return all.pipe(
    Effect.catch((error): Effect.Effect<never, E | CommandError> => {
      const { code, isRetryable, message } = Bulk.reasonOf(error)
      return isRetryable
        ? Effect.fail(new CommandError({ code, message: `${message}; ${howFar()}`, exit: "again" }))
        : Effect.fail(error)
    }),
    Effect.onInterrupt(() =>
      Effect.flatMap(Output, ({ errorStyle, note }) => {
        const message = `interrupted; ${howFar()}`
        return note(`${errorStyle.red("error")}: ${message}`, { error: { code: "Interrupted", message } })
      })
    )
  )
}

/** Fails if there is no one who could confirm. */
export const canConfirm = Effect.flatMap(Output, ({ canAsk }) =>
  canAsk ? Effect.void : Effect.fail(
    new CommandError({
      code: "Unconfirmed",
      message: "there is no terminal to ask on: give --yes, or --dry-run to see what would be done",
      exit: "usage"
    })
  ))

/** Does it to all, and prints what it came to. */
export const run = Effect.fnUntraced(function*<E, R, R2, R3>(
  { dryRun, limit, yes }: Flags,
  items: Stream.Stream<Item, E, R>,
  { isNamed }: { readonly isNamed: boolean },
  action: Action<R2, R3>
) {
  const { answer, note } = yield* Output
  const found = Option.match(limit, { onNone: () => items, onSome: (limit) => Stream.take(items, limit) })
  const nouns = (number: number) => counted(number, action.noun)
  const mustAsk = !yes && (!isNamed || action.asksAboutNamed === true)
  if (mustAsk && !dryRun) yield* canConfirm
  let total: number | undefined
  if (mustAsk || dryRun) {
    const preview = yield* each(
      found,
      isNamed ? action.check : () => Effect.void,
      ({ done }) => `found ${nouns(done)}`
    )
    total = preview.done
    const list = shownIds(preview)
    const foreseen = total === 0
      ? undefined
      : yield* action.foresee?.(acceptedOf(found, preview), total) ?? Effect.undefined
    if (dryRun || total === 0) {
      return yield* answer({
        json: { ...toJson(action, preview, true), ...foreseen?.json },
        text: [
          ...(total === 0 ? [`no ${action.noun}s match`] : [`would ${action.verb} ${nouns(total)}: ${list}`]),
          ...foreseen?.text ?? [],
          ...shownRefusals(preview)
        ]
      })
    }
    yield* Effect.forEach(foreseen?.text ?? [], (line) => note(line, {}))
    yield* confirm(`${action.verb} ${nouns(total)}: ${list}`, false)
  }
  const all = total === undefined ? "" : ` of ${count(total)}`
  const tally = yield* each(
    found,
    (id) => isNamed ? Effect.andThen(action.check(id), action.run(id)) : action.run(id),
    ({ done, refusals }) =>
      `${action.done} ${count(done)}${all} ${action.noun}s${refusals === 0 ? "" : `, ${count(refusals)} refused`}`,
    action
  )
  yield* answer({
    json: toJson(action, tally, false),
    text: tally.done + tally.refusals === 0 ? [`no ${action.noun}s match`] : [
      `${action.done} ${nouns(tally.done)}${tally.done === 0 ? "" : action.outcome ?? ""}`,
      ...shownRefusals(tally)
    ]
  })
  if (tally.refusals > 0) {
    return yield* new CommandError({
      code: "Refused",
      message: `${count(tally.refusals)} of ${nouns(tally.done + tally.refusals)} ${
        tally.refusals === 1 ? "was" : "were"
      } refused`,
      exit: "no"
    })
  }
})

// internal

/** Items that are named in a list for people. */
const longestList = Bulk.mostIds

/** Calls `act` for every item. With words, what stops it says how far it came. */
const each = Effect.fnUntraced(function*<E, R, R2>(
  items: Stream.Stream<Item, E, R>,
  act: (id: string) => Effect.Effect<void, Refusal, R2>,
  shown: (tally: Tally) => string,
  words?: Words
) {
  const progress = yield* Progress.make
  let soFar: Pick<Tally, "done" | "open"> = { done: 0, open: 0 }
  const all = Bulk.each({
    items,
    act,
    onStart: (tally) => void (soFar = tally),
    onProgress: (tally) => progress.report(shown(tally), { done: tally.done, refused: tally.refusals })
  })
  return yield* (words === undefined ? all : stopping(all, words, () => soFar))
})

const toJson = ({ done, noun }: Words, tally: Tally, dryRun: boolean) => ({
  action: done,
  matched: tally.done + tally.refusals,
  done: dryRun ? 0 : tally.done,
  refused: tally.refused.map(({ id, ...rest }) => ({ [`${noun}Id`]: id, ...rest })),
  dryRun,
  ...(dryRun && { first: tally.ids })
})

/** Without those of the preview that are refused: these are named beside it. */
const acceptedOf = <E, R>(items: Stream.Stream<Item, E, R>, { refused }: Tally) => {
  const ids = new Set(refused.map(({ id }) => id))
  return Stream.filter(items, ({ id }) => !ids.has(id))
}

const shownIds = ({ done, ids }: Tally) => {
  const others = done - ids.length
  return oneLine(ids.join(", ")) + (others === 0 ? "" : ` and ${counted(others, "other", "others")}`)
}

const shownRefusals = ({ refusals, refused }: Tally) => {
  if (refusals === 0) return []
  const shown = refused.slice(0, longestList)
  return [
    `${count(refusals)} refused:`,
    ...shown.map(({ id, message }) => `  ${oneLine(message.includes(id) ? message : `${id}: ${message}`)}`),
    ...(refusals === shown.length ? [] : [`  and ${counted(refusals - shown.length, "other", "others")}`])
  ]
}
