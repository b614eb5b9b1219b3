/**
 * Turns camelCase tagged structs into Duroxide's JSON and back.
 *
 * Every variant has its own codec, selected by tag before anything is parsed. So the error for an unknown variant names
 * it, instead of listing one problem per member of the union, and a decode costs one struct, not a search
 * (2.6 microseconds for an `ActivityScheduled` event, 1.3 of them for the key names).
 *
 * A turn encodes every event and message it stores. So a value is written field by field, which takes a seventh of the
 * time that its Schema takes; the Schema encodes what the writers do not expect, and says what is wrong with it.
 */
import * as Exit from "effect/Exit"
import * as Predicate from "effect/Predicate"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as SchemaAST from "effect/SchemaAST"
import * as SchemaTransformation from "effect/SchemaTransformation"
import { U64 } from "./numbers.ts"
import { describe } from "./schemaIssue.ts"

type Fields = Schema.Struct.Fields
type Variants = { readonly [Tag in string]: Fields }

/** The value type of a union given as one record of fields per tag, each joined with the shared `Envelope` fields. */
export type Union<V extends Variants, Envelope extends Fields = {}> = {
  readonly [Tag in keyof V]: Flat<{ readonly _tag: Tag } & Schema.Struct<Envelope & V[Tag]>["Type"]>
}[keyof V]

type Flat<A> = { readonly [K in keyof A]: A[K] }

/** Row text that this version cannot read. */
export interface UnreadableText {
  readonly _tag: "UnreadableText"
  readonly problem: string
}

/** A Schema union with the functions that read and write its row text. */
export interface WireUnion<A> {
  readonly schema: Schema.Codec<A, unknown>
  /** Never throws. */
  readonly decode: (text: string) => Result.Result<A, UnreadableText>
  /** Throws if the value is not of the type, which is a defect of the caller. */
  readonly encode: (value: A) => string
}

/** Each variant is wrapped in an object with one key, its tag: `{"Variant":{…}}`. Fields stand in wire order. */
export const externallyTagged = <const V extends Variants>(name: string, variants: V): WireUnion<Union<V>> =>
  make(
    name,
    Object.entries(variants).map(([tag, fields]) => ({
      tag,
      fields,
      codec: Schema.Struct({ [tag]: renamed(fields) }).pipe(Schema.decodeTo(
        Schema.toType(Schema.Struct({ ...fields, _tag: Schema.tag(tag) })),
        SchemaTransformation.transform<any, any>({
          decode: (wire) => ({ ...wire[tag], _tag: tag }),
          encode: ({ _tag, ...rest }) => ({ [tag]: rest })
        })
      ))
    })),
    (wire) => Object.keys(wire)[0],
    (wire, tag) => wire[tag],
    (tag, fields) => `{${JSON.stringify(tag)}:${fields}}`
  )

/** Flat objects: the envelope, then `type` with the tag, then the variant's own fields. */
export const internallyTagged = <const E extends Fields, const V extends Variants>(
  name: string,
  envelope: E,
  variants: V
): WireUnion<Union<V, E>> =>
  make(
    name,
    Object.entries(variants).map(([tag, own]) => {
      const fields = { ...envelope, _tag: Schema.tag(tag), ...own }
      return { tag, fields, codec: renamed(fields) }
    }),
    (wire) => wire["type"],
    (wire) => wire,
    (_, fields) => fields
  )

// internal

const make = (
  name: string,
  variants: ReadonlyArray<Variant>,
  tagOf: (wire: Wire) => unknown,
  fieldsOf: (wire: Wire, tag: string) => unknown,
  textOf: (tag: string, fields: string) => string
): WireUnion<any> => {
  const byTag = new Map<unknown, Variant>(variants.map((variant) => [variant.tag, variant]))
  const compiled = new Map<unknown, Compiled>()
  /** Compiled when it is first met: a program that only imports this package meets none. */
  const variantOf = (tag: unknown): Compiled | undefined => {
    const known = compiled.get(tag)
    if (known !== undefined) return known
    const variant = byTag.get(tag)
    if (variant === undefined) return undefined
    const made = compile(variant)
    compiled.set(tag, made)
    return made
  }
  const unreadable = (problem: string) => Result.fail<UnreadableText>({ _tag: "UnreadableText", problem })
  return {
    schema: Schema.Union(variants.map(({ codec }) => codec)).annotate({ identifier: name }) as never,
    decode: (text) => {
      let wire: unknown
      try {
        wire = JSON.parse(text)
      } catch {
        return unreadable(`${name} is not JSON`)
      }
      if (!Predicate.isObject(wire)) return unreadable(`${name} is not a JSON object`)
      const tag = tagOf(wire)
      const variant = variantOf(tag)
      if (variant === undefined) return unreadable(`unknown ${name} variant ${JSON.stringify(tag) ?? "(none)"}`)
      variant.normalise(fieldsOf(wire, tag as string))
      const exit = variant.decode(wire)
      return Exit.isSuccess(exit) ? Result.succeed(exit.value) : unreadable(`${name} ${String(tag)}: ${describe(exit)}`)
    },
    encode: (value) => {
      const { encode, write } = variantOf(value._tag)!
      const fields = write(value)
      return fields === undefined ? JSON.stringify(encode(value)) : textOf(value._tag, fields)
    }
  }
}

type Wire = Record<string, unknown>

interface Variant {
  readonly tag: string
  readonly fields: Fields
  readonly codec: Schema.Constraint
}

type Compiled = ReturnType<typeof compile>

const compile = (variant: Variant) => {
  const codec = variant.codec as Schema.Codec<unknown>
  const fields = Object.entries(variant.fields)
  const optional = fields.filter(([, field]) => SchemaAST.isOptional(field.ast)).map(([key]) => wireKey(key))
  const nullable = fields.filter(([, field]) => Schema.is(field)(null)).map(([key]) => wireKey(key))
  return {
    decode: Schema.decodeUnknownExit(codec),
    encode: Schema.encodeSync(codec),
    write: writerOf(variant.fields),
    // For Rust, a missing key and an explicit null mean the same.
    normalise: (wire: unknown) => {
      if (!Predicate.isObject(wire)) return
      const record: Wire = wire
      for (const key of optional) if (record[key] === null) delete record[key]
      for (const key of nullable) if (record[key] === undefined) record[key] = null
    }
  }
}

/** Writes a value as JSON; undefined if only its Schema can encode it, or say what is wrong with it. */
type Write = (value: unknown) => string | undefined

const writerOf = (fields: Fields): Write => {
  const parts = Object.entries(fields).map(([key, field]) => ({
    key,
    prefix: `${JSON.stringify(wireKey(key))}:`,
    isOptional: SchemaAST.isOptional(field.ast),
    write: fieldWriter(field)
  }))
  return (value) => {
    let text = ""
    for (const { isOptional, key, prefix, write } of parts) {
      if (isOptional && !Object.hasOwn(value as Wire, key)) continue
      const written = write((value as Wire)[key])
      if (written === undefined) return undefined
      text += `${text === "" ? "" : ","}${prefix}${written}`
    }
    return `{${text}}`
  }
}

const writeText: Write = (value) => typeof value === "string" ? JSON.stringify(value) : undefined

const writeU64: Write = (value) => Number.isSafeInteger(value) && value as number >= 0 ? String(value) : undefined

const fieldWriter = (field: Fields[string]): Write => {
  const write = plainWriter(field.ast)
  if (write !== undefined) return write
  const encode = Schema.encodeUnknownExit(field as Schema.Codec<unknown>)
  return (value) => {
    const exit = encode(value)
    return Exit.isSuccess(exit) ? JSON.stringify(exit.value) : undefined
  }
}

/** Writer of the types that most fields have. */
const plainWriter = (ast: SchemaAST.AST): Write | undefined => {
  if (ast.encoding !== undefined) return undefined
  if (SchemaAST.isString(ast) && ast.checks === undefined) return writeText
  if (SchemaAST.isNumber(ast) && ast.checks === U64.ast.checks) return writeU64
  if (SchemaAST.isLiteral(ast)) {
    const text = JSON.stringify(ast.literal)
    return (value) => value === ast.literal ? text : undefined
  }
  if (!SchemaAST.isUnion(ast) || ast.types.length !== 2 || !SchemaAST.isNull(ast.types[1]!)) return undefined
  const write = plainWriter(ast.types[0]!)
  return write && ((value) => value === null ? "null" : write(value))
}

const renamed = (fields: Fields) =>
  Schema.Struct(fields).pipe(
    Schema.encodeKeys(Object.fromEntries(Object.keys(fields).map((key) => [key, wireKey(key)])) as never)
  )

const wireKey = (key: string) => key === "_tag" ? "type" : key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
