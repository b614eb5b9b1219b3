/** The filter of the list: texts in the fragment, and the search that they make. */
import type { Query } from "../../app/route.ts"
import { now } from "../../client/clock.ts"
import type { Search } from "../../client/models.ts"
import { dateTime } from "../../parts/time.tsx"
import { timeOf } from "../../parts/times.ts"

export const statuses = ["Running", "Completed", "Failed", "Cancelled", "Blocked", "Paused"] as const
export const orders = ["newest", "oldest", "id"] as const

const texts = ["name", "version", "idPrefix", "parent", "attributes", "customStatus", "error"] as const
const times = ["createdFromMs", "createdBeforeMs", "updatedFromMs", "updatedBeforeMs"] as const

export const filterKeys = ["status", "roots", "retrying", ...texts, ...times] as const

/** The search, or the times that cannot be read. */
export const searchOf = (query: Query): { readonly search: Search; readonly wrong: ReadonlyArray<string> } => {
  const search: { -readonly [Key in keyof Search]: Search[Key] } = {}
  const wrong: Array<string> = []
  const status = statuses.find((one) => one === query["status"])
  if (status !== undefined) search.status = status
  for (const key of texts) {
    const value = query[key]
    if (value !== undefined && value.trim() !== "") search[key] = value
  }
  if (query["roots"] === "true") search.roots = "true"
  if (query["retrying"] === "true") search.retrying = "true"
  const nowMs = now()
  for (const key of times) {
    const value = query[key]
    if (value === undefined || value.trim() === "") continue
    const ms = timeOf(value, nowMs)
    if (ms === undefined) wrong.push(key)
    else search[key] = Math.round(ms)
  }
  return { search, wrong }
}

export const orderOf = (query: Query) => orders.find((one) => one === query["order"]) ?? "newest"

export const isFiltered = (query: Query) => filterKeys.some((key) => (query[key] ?? "") !== "")

/** The first attribute that is compared as a text although its value is a number. */
export const textNumberOf = (
  attributes: string
): { readonly name: string; readonly value: string } | undefined => {
  for (const line of attributes.split("\n")) {
    const [, name, value] = /^\s*([^:=<>\s]+)=(-?\d+(?:\.\d+)?)\s*$/.exec(line) ?? []
    if (name !== undefined && value !== undefined) return { name, value }
  }
  return undefined
}

export const timeWords = {
  createdFrom: "created since",
  createdBefore: "created before",
  updatedFrom: "last turn since",
  updatedBefore: "last turn before"
}

/** Each condition of a search in words. */
export const searchInWords = (search: Search): ReadonlyArray<string> => {
  const time = (ms: number | undefined, words: string) => ms === undefined ? [] : [`${words} ${dateTime(ms)}`]
  const text = (value: string | undefined, words: string) => value === undefined ? [] : [`${words} ${value}`]
  return [
    ...text(search.status, "status"),
    ...text(search.name, "orchestration"),
    ...text(search.version, "version"),
    ...text(search.idPrefix, "id begins with"),
    ...text(search.parent, "children of"),
    ...(search.roots === "true" ? ["only roots"] : []),
    ...(search.retrying === "true" ? ["retrying an activity"] : []),
    ...text(search.attributes?.trim().replaceAll("\n", " and "), "attributes"),
    ...text(search.customStatus, "custom status contains"),
    ...text(search.error, "error contains"),
    ...time(search.createdFromMs, timeWords.createdFrom),
    ...time(search.createdBeforeMs, timeWords.createdBefore),
    ...time(search.updatedFromMs, timeWords.updatedFrom),
    ...time(search.updatedBeforeMs, timeWords.updatedBefore)
  ]
}

/** Whether more than the status, or the name, is filtered: such instances are not counted beforehand. */
export const isFilteredFurther = (query: Query) =>
  filterKeys.some((key) => key !== "status" && key !== "name" && (query[key] ?? "") !== "")
