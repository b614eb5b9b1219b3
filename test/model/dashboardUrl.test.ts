/**
 * Which addresses a dashboard may have, and that of an instance in it.
 */
import { assert, describe, it } from "@effect/vitest"
import * as dashboardUrl from "../../src/model/shared/dashboardUrl.ts"

describe("The address of a dashboard", () => {
  for (
    const [text, read] of [
      ["https://shop.example/duroxide/", "https://shop.example/duroxide"],
      ["https://shop.example/duroxide", "https://shop.example/duroxide"],
      ["http://localhost:4983", "http://localhost:4983"],
      ["http://localhost:4983/", "http://localhost:4983"],
      ["HTTPS://Shop.Example/Duroxide", "https://shop.example/Duroxide"],
      ["http://[::1]:80/a/b/", "http://[::1]/a/b"],
      ["https://shop.example/@team", "https://shop.example/@team"]
    ] as const
  ) it(`may be ${text}`, () => assert.strictEqual(dashboardUrl.read(text), read))

  for (
    const [problem, text] of [
      ["is empty", ""],
      ["is a path", "/duroxide"],
      ["has no scheme", "shop.example/duroxide"],
      ["has no slashes", "https:shop.example"],
      ["has no host", "https:///duroxide"],
      ["has another scheme", "ftp://shop.example"],
      ["is a script", "javascript://shop.example/%0aalert(1)"],
      ["has a name", "https://anna@shop.example"],
      ["has a password", "https://:hunter2@shop.example"],
      ["has a query", "https://shop.example/?a=1"],
      ["has an empty query", "https://shop.example/?"],
      ["has a fragment", "https://shop.example/#/instances"],
      ["has an empty fragment", "https://shop.example/#"],
      ["has a space", "https://shop.example/a b"],
      ["has two lines", "https://shop.example/\nduroxide"],
      ["has no such port", "https://shop.example:99999"]
    ] as const
  ) it(`is refused when it ${problem}`, () => assert.isUndefined(dashboardUrl.read(text)))

  it("leads to an instance, whatever its id has", () => {
    const page = dashboardUrl.ofInstance("https://shop.example/duroxide", "order 1/2?#%&ü")
    assert.strictEqual(page, "https://shop.example/duroxide/#/instances/order%201%2F2%3F%23%25%26%C3%BC")
    assert.strictEqual(decodeURIComponent(new URL(page).hash.split("/").at(-1)!), "order 1/2?#%&ü")
  })
})
