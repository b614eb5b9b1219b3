/** The filter of the list: texts in the fragment, and the search that they make. */
import type { Query } from "../../app/route.ts"
import { now } from "../../client/clock.ts"
import type { Search } from "../../client/models.ts"

export const statuses = ["Running", "Completed", "Failed", "Cancelled", "Blocked", "Paused"] as const
export const orders = ["newest", "oldest", "id"] as const

const texts = ["name", "version", "idPrefix", "parent", "attributes", "customStatus", "error"] as const
const times = ["createdFromMs", "createdBeforeMs", "updatedFromMs", "updatedBeforeMs"] as const

export const filterKeys = ["status", "roots", "retrying", ...texts, ...times] as const

const units: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Milliseconds of `now`, of an age such as `2h`, of a time such as `2026-11-27T08:00Z`, or of a number; else NaN. */
export const timeOf = (text: string, nowMs: number): number => {
  const trimmed = text.trim()
  if (trimmed === "now") return nowMs
  const age = /^(\d+(?:\.\d+)?)\s*([smhd])/.exec(trimmed)
  if (age?.[1] !== undefined && age[2] !== undefined) return nowMs - Number(age[1]) * (units[age[2]] ?? Number.NaN)
  if (/^\d{11,}$/.test(trimmed)) return Number(trimmed)
  return Date.parse(trimmed)
}

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
    if (Number.isFinite(ms)) search[key] = Math.round(ms)
    else wrong.push(key)
  }
  return { search, wrong }
}

export const orderOf = (query: Query) => orders.find((one) => one === query["order"]) ?? "newest"

export const isFiltered = (query: Query) => filterKeys.some((key) => (query[key] ?? "") !== "")
