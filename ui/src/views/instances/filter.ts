/** The filter of the list: texts in the fragment, and the search that they make. */
import type { Query } from "../../app/route.ts"
import { now } from "../../client/clock.ts"
import type { Search } from "../../client/models.ts"
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
