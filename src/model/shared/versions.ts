/**
 * Versions of orchestrations.
 */
import * as Result from "effect/Result"
import * as SemVer from "effect/SemVer"

/** Texts with which other clients ask for any version. */
export const anyVersion: ReadonlyArray<string> = ["unknown", "0.0.0"]

/** Other processes may use any text as a version; a text that is not a semantic version is older than all versions. */
export const isOlder = (version: string, than: string): boolean => {
  const [one, other] = [SemVer.parse(version), SemVer.parse(than)]
  return Result.isSuccess(other) && (Result.isFailure(one) || SemVer.isLessThan(one.success, other.success))
}
