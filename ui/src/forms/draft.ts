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

/** The draft that makes this JSON; collects in `problems` what the form cannot show. */
export const toDraft = (shape: Shape, json: Json, path: string, problems: Array<Problem>): Draft => {
  const fail = (text: string): Draft => {
    problems.push({ path, text })
    return undefined
  }
  switch (shape.kind) {
    case "text":
      return typeof json === "string" ? json : fail("needs a text")
    case "number":
      return typeof json === "number" ? String(json) : fail("needs a number")
    case "boolean":
      return typeof json === "boolean" ? json : fail("needs true or false")
    case "choice": {
      const text = JSON.stringify(json)
      return shape.values.some((value) => JSON.stringify(value) === text)
        ? text
        : fail(`needs one of ${shape.values.join(", ")}`)
    }
    case "null":
      return json === null ? null : fail("needs null")
    case "nullable":
      return json === null ? null : toDraft(shape.of, json, path, problems)
    case "array":
      return Array.isArray(json)
        ? json.map((item, at) => draftText(toDraft(shape.item, item, `${path}[${at}]`, problems)))
        : fail("needs a list")
    case "object": {
      if (typeof json !== "object" || json === null || Array.isArray(json)) return fail("needs an object")
      const values = json as { readonly [key: string]: Json }
      const unknown = Object.keys(values).find((key) => !shape.fields.some(({ name }) => name === key))
      if (unknown !== undefined) return fail(`has ${unknown}, for which the form has no field`)
      const entries = shape.fields.map((field): [string, Draft] => {
        const inner = path === "" ? field.name : `${path}.${field.name}`
        const value = Object.hasOwn(values, field.name) ? values[field.name] : undefined
        if (value !== undefined) return [field.name, toDraft(field.shape, value, inner, problems)]
        if (field.isRequired) problems.push({ path: inner, text: "is missing" })
        return [field.name, undefined]
      })
      return Object.fromEntries(entries)
    }
    case "json":
      return JSON.stringify(json, null, 2)
  }
}
