/**
 * What the dashboard knows of the application, beside its store.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Ids } from "../../model/shared/definitions.ts"
import type { PayloadSchema } from "../../model/shared/payload.ts"
import { isOlder } from "../../model/shared/versions.ts"
import { Refused } from "../Api.ts"
import type * as Api from "../Api.ts"

export interface Knowledge {
  readonly payloads: "show" | "hide"
  readonly orchestrations: ReadonlyArray<Known & { readonly version: string }>
  readonly signals: ReadonlyArray<Known>
  readonly requests: ReadonlyArray<Known>
  readonly metricsUrl: string | null
  readonly maxStreams: number
  readonly packageVersion: string
}

/** A definition: its payload makes a form, and checks what comes from it. */
export interface Known {
  readonly name: string
  readonly payload: PayloadSchema
  /** How an id is made from a payload. */
  readonly instanceId?: Ids
}

/** The definition of this version, or without one of the newest; undefined if it is not known. */
export const versionOf = (
  { orchestrations }: Pick<Knowledge, "orchestrations">,
  name: string,
  version: string | undefined
): Known | undefined => {
  const versions = orchestrations.filter((one) => one.name === name)
  return version === undefined
    ? versions.reduce<typeof versions[number] | undefined>(
      (newest, one) => newest === undefined || isOlder(newest.version, one.version) ? one : newest,
      undefined
    )
    : versions.find((one) => one.version === version)
}

/** Null for a Schema that JSON Schema cannot describe: the dashboard then asks for JSON text. */
export const formOf = ({ payload }: Known): typeof Api.JsonSchema.Type | null => {
  try {
    const { definitions, schema } = Schema.toJsonSchemaDocument(payload)
    // As it is sent: without what JSON leaves out.
    return JSON.parse(JSON.stringify({ definitions, schema })) as typeof Api.JsonSchema.Type
  } catch {
    return null
  }
}

/** The decoded payload; fails if the definition is known and does not take it. What is not known takes any. */
export const check = (known: Known | undefined, payload: unknown): Effect.Effect<unknown, Refused> =>
  known === undefined ? Effect.succeed(payload) : (
    Schema.decodeUnknownEffect(Schema.toCodecJson(known.payload))(payload).pipe(
      Effect.mapError(({ message }) =>
        new Refused({
          code: "PayloadMismatch",
          message: `the payload does not match the schema of ${known.name}: ${message}`
        })
      )
    )
  )
