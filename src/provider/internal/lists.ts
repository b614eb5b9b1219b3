/**
 * Lists and counts of instances over their driver: cursors and pages.
 */
import * as Effect from "effect/Effect"
import * as Base64Url from "effect/encoding/Base64Url"
import * as Result from "effect/Result"
import type * as Attribute from "../../model/Attribute.ts"
import type { InstanceState } from "../../model/Instance.ts"
import { decode, encodeConditions } from "../../model/shared/attributes.ts"
import type { Admin, InstanceInfo, PageSearch } from "../Admin.ts"
import type { AdminDriver, Listing, ListOrder, ListPosition } from "../AdminDriver.ts"
import { InvalidInput, ProviderError } from "../ProviderError.ts"
import { endOf, outcomeOf } from "../shared/endOf.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"

type Service = Pick<Admin["Service"], "list" | "count">

export const lists = (driver: AdminDriver["Service"]): Service => {
  const list = (search: PageSearch = {}) => {
    const orderBy = search.orderBy ?? (search.idPrefix === undefined ? "newest" : "id")
    const after = search.cursor === undefined ? null : positionOf(orderBy, search.cursor)
    return checked("list", [
      ...texts.map((field) => check.text(field, search[field])),
      ...numbers.map((field) => check.whole(field, search[field])),
      check.oneOf("orderBy", search.orderBy, orders),
      check.oneOf("status", search.status, [...statuses, "Blocked", "Paused"]),
      after === undefined ? ["cursor", `it is not one of a list in the order "${orderBy}"`] : undefined,
      check.whole("limit", search.limit, 1, longestPage)
    ], () =>
      Effect.gen(function*() {
        const attributes = yield* conditionsOf("list", search.attributes)
        const { instanceIds, next } = yield* driver.listInstances({
          ...everything,
          status: search.status ?? (search.isRetrying === true ? "Running" : null),
          isRetrying: search.isRetrying ?? false,
          orchestrationName: search.name ?? null,
          orchestrationVersion: search.version ?? null,
          parentInstanceId: search.parentId ?? null,
          isRoot: search.isRoot ?? false,
          exceptDuroxide: search.exceptDuroxide ?? false,
          idPrefix: search.idPrefix ?? null,
          createdFromMs: search.createdFromMs ?? null,
          createdBeforeMs: search.createdBeforeMs ?? null,
          updatedFromMs: search.updatedFromMs ?? null,
          updatedBeforeMs: search.updatedBeforeMs ?? null,
          endedBeforeMs: search.endedBeforeMs ?? null,
          customStatus: search.customStatus ?? null,
          error: search.error ?? null,
          attributes,
          orderBy,
          after: after ?? null,
          limit: search.limit ?? 100
        })
        const states = new Map(
          (yield* withAttributes(driver, yield* driver.readInstances(instanceIds))).map((one) => [one.instanceId, one])
        )
        return {
          // One may be deleted between the two reads.
          instances: instanceIds.flatMap((id) => states.get(id) ?? []),
          next: next === null ? null : cursorOf(orderBy, next)
        }
      }))
  }

  return {
    list,

    count: ({ attributes, byVersion = false, name, status } = {}) =>
      checked("count", [check.text("name", name), check.oneOf("status", status, statuses)], () =>
        Effect.map(
          Effect.flatMap(conditionsOf("count", attributes), (attributes) =>
            driver.countInstances({
              status: status ?? null,
              orchestrationName: name ?? null,
              attributes,
              byVersion,
              exactUpTo
            })),
          (counts) => [...counts].sort((a, b) => b.instances - a.instances || (keyOf(a) < keyOf(b) ? -1 : 1))
        ))
  }
}

/** The states with the attributes of their instances. */
export const withAttributes = Effect.fnUntraced(function*(
  driver: Pick<AdminDriver["Service"], "readAttributes">,
  states: ReadonlyArray<InstanceState>
) {
  const byInstance = new Map<string, Array<[string, Attribute.Value]>>(states.map(({ instanceId }) => [instanceId, []]))
  const stored = states.length === 0 ? [] : yield* driver.readAttributes([...byInstance.keys()])
  for (const { instanceId, name, value } of stored) byInstance.get(instanceId)?.push([name, decode(value)])
  return states.map((state): InstanceInfo => ({
    ...state,
    status: statusOf(state),
    attributes: Object.fromEntries(byInstance.get(state.instanceId)!)
  }))
})

/** The listing that passes every instance, the newest first. */
export const everything: Listing = {
  status: null,
  orchestrationName: null,
  orchestrationVersion: null,
  parentInstanceId: null,
  isRoot: false,
  isRetrying: false,
  idPrefix: null,
  createdFromMs: null,
  createdBeforeMs: null,
  updatedFromMs: null,
  updatedBeforeMs: null,
  endedBeforeMs: null,
  exceptDuroxide: false,
  customStatus: null,
  error: null,
  attributes: [],
  orderBy: "newest",
  after: null,
  limit: 100
}

// internal

const statusOf = (state: InstanceState) => {
  const end = endOf(state)
  return end === undefined ? state.status : outcomeOf(end).status
}

const conditionsOf = (operation: string, given: Attribute.Conditions | undefined) =>
  given === undefined ? Effect.succeed([]) : Effect.mapError(
    encodeConditions(given),
    ({ field, problem }) => new ProviderError({ operation, reason: new InvalidInput({ field, problem }) })
  )

/** Their outputs are read as well, which may be long. */
const longestPage = 1000

const exactUpTo = 10_000

const statuses = ["Running", "Completed", "Failed", "Cancelled"] as const

const orders: ReadonlyArray<ListOrder> = ["newest", "oldest", "id"]

const texts = ["name", "version", "parentId", "idPrefix", "customStatus", "error"] as const

const numbers = ["createdFromMs", "createdBeforeMs", "updatedFromMs", "updatedBeforeMs", "endedBeforeMs"] as const

const keyOf = (count: object) => JSON.stringify(count)

export const cursorOf = (orderBy: ListOrder, { createdAtUs, instanceId }: ListPosition) =>
  Base64Url.encode(JSON.stringify([orderBy, createdAtUs, instanceId]))

/** Undefined for anything but a cursor of this order. */
export const positionOf = (orderBy: ListOrder, cursor: string): ListPosition | undefined => {
  try {
    const found: unknown = JSON.parse(Result.getOrThrow(Base64Url.decodeString(cursor)))
    if (!Array.isArray(found) || found.length !== 3) return undefined
    const [order, createdAtUs, instanceId] = found as ReadonlyArray<unknown>
    return order === orderBy && Number.isSafeInteger(createdAtUs) && typeof instanceId === "string" &&
        check.text("cursor", instanceId) === undefined
      ? { createdAtUs: createdAtUs as number, instanceId }
      : undefined
  } catch {
    return undefined
  }
}
