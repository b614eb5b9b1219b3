/** What someone has filled in so far, and the JSON that it makes. */
import type { Shape } from "./shape.ts"

/** Texts as they are typed; `undefined` where an optional field is left out. */
export type Draft = string | boolean | null | undefined | ReadonlyArray<string> | { readonly [name: string]: Draft }

export type Json = string | number | boolean | null | ReadonlyArray<Json> | { readonly [key: string]: Json }

export interface Problem {
  readonly path: string
  readonly text: string
}

/** The text of a draft that is one. */
export const draftText = (draft: Draft): string => typeof draft === "string" ? draft : ""

export const emptyDraft = (shape: Shape): Draft => {
  switch (shape.kind) {
    case "text":
    case "number":
      return ""
    case "json":
      return ""
    case "boolean":
      return false
    case "choice":
      return JSON.stringify(shape.values[0])
    case "array":
      return []
    case "object":
      return Object.fromEntries(
        shape.fields.map((field) => [field.name, field.isRequired ? emptyDraft(field.shape) : undefined])
      )
    case "nullable":
    case "null":
      return null
  }
}

/** The JSON of a draft; collects in `problems` what cannot be sent. */
export const toJson = (shape: Shape, draft: Draft, path: string, problems: Array<Problem>): Json => {
  const fail = (text: string): Json => {
    problems.push({ path, text })
    return null
  }
  switch (shape.kind) {
    case "text":
      return draftText(draft)
    case "number": {
      const text = draftText(draft).trim()
      const value = Number(text)
      if (text === "" || !Number.isFinite(value)) return fail("needs a number")
      return shape.isInteger && !Number.isInteger(value) ? fail("needs a whole number") : value
    }
    case "boolean":
      return draft === true
    case "choice":
      return JSON.parse(draftText(draft)) as Json
    case "null":
      return null
    case "nullable":
      return draft === null || draft === undefined ? null : toJson(shape.of, draft, path, problems)
    case "array": {
      const items = Array.isArray(draft) ? draft as ReadonlyArray<string> : []
      return items.map((item, at) => toJson(shape.item, item, `${path}[${at}]`, problems))
    }
    case "object": {
      const fields = draft as { readonly [name: string]: Draft }
      const entries: Array<[string, Json]> = []
      for (const field of shape.fields) {
        const value = fields[field.name]
        if (value === undefined && !field.isRequired) continue
        entries.push([
          field.name,
          toJson(field.shape, value, path === "" ? field.name : `${path}.${field.name}`, problems)
        ])
      }
      return Object.fromEntries(entries)
    }
    case "json":
      try {
        return JSON.parse(draftText(draft)) as Json
      } catch {
        return fail("is not JSON")
      }
  }
}
