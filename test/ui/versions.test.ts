/** Which version the page takes for the newest. */
import { assert, it } from "@effect/vitest"
import { compareVersions } from "../../ui/src/views/versions.ts"

it("versions are compared by their numbers", () => {
  assert.deepStrictEqual(
    ["2.0.0", "1.10.0", "1.9.0", "2.0.0-rc.1", "0.1.0"].toSorted(compareVersions),
    ["0.1.0", "1.9.0", "1.10.0", "2.0.0-rc.1", "2.0.0"]
  )
})
