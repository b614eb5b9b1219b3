/**
 * What a process serves.
 */
import type { TagFilter } from "../model/Instance.ts"

/** The tags that are taken, null for activities without one; null: any. */
export const tagsOf = (filter: TagFilter): ReadonlyArray<string | null> | null => {
  switch (filter._tag) {
    case "Any":
      return null
    case "None":
      return []
    case "DefaultOnly":
      return [null]
    case "DefaultAnd":
      return [null, ...filter.tags]
    case "Tags":
      return filter.tags
  }
}
