/**
 * Filters of the dashboard as searches.
 */
import * as Effect from "effect/Effect"
import { conditionsOf } from "../../operating/attributes.ts"
import type { InstanceSearch } from "../../provider/Admin.ts"
import { Refused } from "../Api.ts"
import type * as Api from "../Api.ts"

/** Fails with an attribute that cannot be read. */
export const of = Effect.fnUntraced(
  function*(search: typeof Api.Search.Type): Effect.fn.Return<InstanceSearch, Refused> {
    const attributes = (search.attributes ?? "").split("\n").map((line) => line.trim()).filter((line) => line !== "")
    return {
      status: search.status,
      name: search.name,
      version: search.version,
      idPrefix: search.idPrefix,
      parentId: search.parent,
      isRoot: search.roots === "true",
      isRetrying: search.retrying === "true",
      attributes: yield* conditionsOf(attributes).pipe(
        Effect.mapError(({ message }) => new Refused({ code: "InvalidInput", message: `attributes: ${message}` }))
      ),
      createdFromMs: search.createdFromMs,
      createdBeforeMs: search.createdBeforeMs,
      updatedFromMs: search.updatedFromMs,
      updatedBeforeMs: search.updatedBeforeMs,
      customStatus: search.customStatus,
      error: search.error
    }
  }
)

/** Filters of the table of actions: only those that are set. */
export const shown = (search: typeof Api.Search.Type): string =>
  Object.entries(search).map(([field, value]) => `${field} ${String(value).replaceAll("\n", ", ")}`).join("; ") ||
  "all"
