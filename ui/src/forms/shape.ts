/** What a JSON Schema asks for, as far as a form can ask it; everything else is JSON text. */
import * as Predicate from "effect/Predicate"
import type { JsonSchema } from "../client/models.ts"

export type Shape = { readonly title?: string; readonly note?: string } & ShapeKind

type ShapeKind =
  | { readonly kind: "text"; readonly isLong: boolean }
  | { readonly kind: "number"; readonly isInteger: boolean }
  | { readonly kind: "boolean" }
  | { readonly kind: "choice"; readonly values: ReadonlyArray<string | number | boolean> }
  | { readonly kind: "object"; readonly fields: ReadonlyArray<Field> }
  | { readonly kind: "array"; readonly item: Shape }
  | { readonly kind: "nullable"; readonly of: Shape }
  | { readonly kind: "null" }
  | { readonly kind: "json" }

export interface Field {
  readonly name: string
  readonly isRequired: boolean
  readonly shape: Shape
}

const deepest = 6

type Json = Readonly<Record<string, unknown>>

const isRecord = (value: unknown): value is Json => Predicate.isObject(value) && !Array.isArray(value)
const isPlain = (value: unknown): value is string | number | boolean =>
  Predicate.isString(value) || Predicate.isNumber(value) || Predicate.isBoolean(value)

export const shapeOf = (document: JsonSchema): Shape => shape(document.schema, document.definitions, 0)

const shape = (schema: unknown, definitions: Json, depth: number): Shape => {
  if (!isRecord(schema) || depth > deepest) return { kind: "json" }
  const ref = schema["$ref"]
  if (Predicate.isString(ref)) {
    const name = ref.split("/").at(-1)?.replaceAll("~1", "/").replaceAll("~0", "~") ?? ""
    return Object.hasOwn(definitions, name) ? shape(definitions[name], definitions, depth + 1) : { kind: "json" }
  }
  const words = {
    ...(Predicate.isString(schema["title"]) ? { title: schema["title"] } : {}),
    ...(Predicate.isString(schema["description"]) ? { note: schema["description"] } : {})
  }
  return { ...words, ...kindOf(schema, definitions, depth) }
}

const kindOf = (schema: Json, definitions: Json, depth: number): Shape => {
  if (isPlain(schema["const"])) return { kind: "choice", values: [schema["const"]] }
  const values = schema["enum"]
  if (Array.isArray(values) && values.every(isPlain)) return { kind: "choice", values }
  const union = schema["anyOf"] ?? schema["oneOf"]
  if (Array.isArray(union)) return unionOf(union, definitions, depth)
  switch (schema["type"]) {
    case "string":
      return { kind: "text", isLong: Predicate.isNumber(schema["maxLength"]) && schema["maxLength"] > 200 }
    case "number":
      return { kind: "number", isInteger: false }
    case "integer":
      return { kind: "number", isInteger: true }
    case "boolean":
      return { kind: "boolean" }
    case "null":
      return { kind: "null" }
    case "array":
      return arrayOf(schema, definitions, depth)
    case "object":
      return objectOf(schema, definitions, depth)
    default:
      return { kind: "json" }
  }
}

const objectOf = (schema: Json, definitions: Json, depth: number): Shape => {
  const properties = schema["properties"]
  if (!isRecord(properties)) return { kind: "json" }
  const required = Array.isArray(schema["required"]) ? schema["required"] : []
  return {
    kind: "object",
    fields: Object.entries(properties).map(([name, value]) => ({
      name,
      isRequired: required.includes(name),
      shape: shape(value, definitions, depth + 1)
    }))
  }
}

const arrayOf = (schema: Json, definitions: Json, depth: number): Shape => {
  const item = shape(schema["items"], definitions, depth + 1)
  const isSimple = item.kind === "text" || item.kind === "number" || item.kind === "choice"
  return isSimple && schema["prefixItems"] === undefined ? { kind: "array", item } : { kind: "json" }
}

const unionOf = (members: ReadonlyArray<unknown>, definitions: Json, depth: number): Shape => {
  const shapes = members.map((member) => shape(member, definitions, depth + 1))
  const others = shapes.filter(({ kind }) => kind !== "null")
  const [first] = others
  // Numbers that JSON cannot express are texts such as "NaN" in what an Effect Schema encodes.
  const real = others.find(({ kind }) => kind === "number")
  const isNumber = real !== undefined &&
    others.every((one) => one.kind === "number" || (one.kind === "choice" && one.values.every(isUnreal)))
  const of: Shape | undefined = isNumber
    ? real
    : others.every((one) => one.kind === "choice")
    ? { kind: "choice", values: others.flatMap((one) => one.kind === "choice" ? one.values : []) }
    : others.length === 1
    ? first
    : undefined
  if (first === undefined) return { kind: "null" }
  if (of === undefined) return { kind: "json" }
  return others.length === shapes.length ? of : { kind: "nullable", of }
}

const isUnreal = (value: unknown) => value === "NaN" || value === "Infinity" || value === "-Infinity"
