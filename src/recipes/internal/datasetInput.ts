/**
 * Checks what people give for a data set before it is sent.
 */
import * as Effect from "effect/Effect"
import { isUuid, maxNameBytes, problemOfName } from "../../model/shared/identifiers.ts"
import { InvalidInput } from "../DatasetError.ts"

/** Longer than any address in S3. It is a part of an index entry, which has at most 2,704 bytes. */
const maxUriBytes = 2048

export type Checked = Effect.Effect<void, InvalidInput>

const check = (field: string, problem: string | undefined): Checked =>
  problem === undefined ? Effect.void : Effect.fail(new InvalidInput({ field, problem }))

/** A number of records, batches or versions. */
export const checkCount = (field: string, count: number, atLeast = 0, atMost = Number.MAX_SAFE_INTEGER): Checked =>
  check(
    field,
    Number.isSafeInteger(count) && count >= atLeast && count <= atMost
      ? undefined
      : atMost === Number.MAX_SAFE_INTEGER
      ? `it is not a whole number of at least ${atLeast}`
      : `it is not a whole number from ${atLeast} to ${atMost}`
  )

export const checkUuid = (field: string, uuid: string): Checked =>
  check(field, isUuid(uuid) ? undefined : "it is not a UUID")

export const checkDatasetName = (name: string): Checked =>
  check("name", typeof name === "string" ? problemOfName(name, maxNameBytes) : "it is not a text")

export const checkUri = (field: string, uri: string): Checked =>
  check(field, typeof uri === "string" ? problemOfName(uri, maxUriBytes) : "it is not a text")

/** A version of a data set. */
export const checkVersion = (datasetUuid: string, version: number): Checked =>
  Effect.andThen(checkUuid("datasetUuid", datasetUuid), checkCount("version", version, 1))
