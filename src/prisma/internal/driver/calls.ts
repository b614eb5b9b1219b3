/**
 * Forms that several operations of the driver share: sets of items, and the limits of claims and pages.
 */
import * as Effect from "effect/Effect"
import type { Settled } from "../../../provider/ProviderDriver.ts"
import { Prisma } from "../client.ts"
import { json } from "../rows.ts"
import * as settings from "../settings.ts"
import type { Settings, Statements } from "../statements.ts"
import { withTexts } from "../texts.ts"
import type { Texts } from "../texts.ts"

export type Calls = ReturnType<typeof make>

export const make = ({ answer, rows }: Statements) => ({
  answer,
  rows,

  /** One answer per item. */
  settle:
    <Item>(operation: string, name: string, encode: (item: Item) => object, settings?: Settings) =>
    (items: ReadonlyArray<Item>) =>
      items.length === 0
        ? Effect.succeed<ReadonlyArray<Settled>>([])
        : answer<ReadonlyArray<Settled>>(operation, name, [json(items.map(encode))], {
          ...settings,
          items: items.length
        }),

  insert:
    <Item>(operation: string, name: string, encode: (texts: Texts) => (item: Item) => object) =>
    (items: ReadonlyArray<Item>) =>
      items.length === 0
        ? Effect.void
        : Effect.asVoid(
          answer<bigint>(operation, name, withTexts((texts) => [json(items.map(encode(texts)))]), {
            items: items.length
          })
        )
})

/** Evaluated before the claim begins. */
export const limitOf = (queue: "orchestrator_queue" | "worker_queue", limit: number, isThorough = false) =>
  settings.during(isThorough ? [settings.withoutMark(queue)] : [], Prisma.sql`${limit}::integer`)

/** Claims commit without waiting for the disk. No transaction of an application sends one. */
export const claiming: Settings = { kind: "claim", isUnflushed: true }

/** Limit for the messages of one claim, and for the events of one page of a history. */
export const defaultMaxBytes = 16 * 1024 * 1024
