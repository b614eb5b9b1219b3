/**
 * Compares the tables of options with the code: every option, and its default.
 */
import { assert, describe, it } from "@effect/vitest"
import type { PrismaProvider } from "duroxide-prisma/prisma"
import type { FromDriver } from "duroxide-prisma/provider"
import type { ProviderTest } from "duroxide-prisma/testing/provider"
import * as Duration from "effect/Duration"
import * as settings from "../../src/runtime/settings.ts"
import * as Docs from "../utils/docs.ts"

/** The options of the first table behind a text, with their defaults as people read them. */
const table = (page: string, behind: string): Record<string, string> => {
  const [, rest] = Docs.read(page).split(`\n${behind}\n`)
  const [rows] = rest!.slice(rest!.indexOf("\n| ")).trim().split("\n\n")
  return Object.fromEntries(
    rows!.split("\n").slice(2).flatMap((row) => {
      const [, cell, standard] = row.split("|").map((text) => text.trim().replaceAll("`", ""))
      const names = cell!.split(", ")
      const defaults = standard!.split(", ")
      assert.lengthOf(defaults, names.length, row)
      return names.map((name, i) => [name, defaults[i]!] as const)
    })
  )
}

const units = [["day", 86_400_000], ["minute", 60_000], ["second", 1_000], ["millisecond", 1]] as const

const amount = (value: Duration.Duration) => {
  const ms = Duration.toMillis(value)
  const [unit, length] = units.find(([, length]) => ms % length === 0)!
  return `${ms / length} ${unit}${ms === length ? "" : "s"}`
}

const readable = (value: unknown): string =>
  Duration.isDuration(value)
    ? amount(value)
    : typeof value === "number"
    ? value % 1_048_576 === 0 ? `${value / 1_048_576} MiB` : value.toLocaleString("en-US")
    : value === undefined
    ? "one per runtime"
    : typeof value === "object"
    ? (value as { readonly _tag: string })._tag
    : `${value as string | boolean}`

/** The default that the comment above an option states. */
const commented = (sources: ReadonlyArray<string>, option: string) => {
  const comment = new RegExp(String.raw`/\*\*((?:(?!\*/)[\s\S])*)\*/\s*readonly ${option}\??:`)
  const [text] = sources.flatMap((file) => comment.exec(Docs.read(file))?.[1] ?? [])
  return /Defaults to ([\s\S]*)/.exec(text!.replace(/\s*\n \s*\* ?/g, " ").replaceAll("`", ""))?.[1] ?? ""
}

/** The value the code uses if the option is left out. */
const coded = (sources: ReadonlyArray<string>, option: string) => {
  const fallback = new RegExp(String.raw`options\??\.${option} \?\? ("[^"]*"|\w+)`)
  const [value] = sources.flatMap((file) => fallback.exec(Docs.read(file))?.[1] ?? [])
  return value?.replaceAll("\"", "").replace("millis", "milliseconds")
}

describe("README.md:", () => {
  it("RuntimeConfig.layer has these options and defaults", () => {
    assert.deepStrictEqual(
      table("README.md", "`RuntimeConfig.layer(options)`:"),
      Object.fromEntries(Object.entries(settings.defaults).map(([name, value]) => [name, readable(value)]))
    )
  })

  it("PrismaProvider.layer has these options and defaults", () => {
    const defaults: Record<keyof PrismaProvider.Options, string> = {
      url: "–",
      schema: "public",
      migrate: "apply",
      allowAhead: "false",
      directUrl: "url",
      maxConnections: "10",
      checkoutTimeout: "30 seconds",
      statementTimeout: "30 seconds",
      applicationName: "duroxide-prisma",
      preparedStatements: "true",
      clock: "database",
      longPolling: "on",
      lanes: "2",
      maxBatch: "64"
    }
    assert.deepStrictEqual(table("README.md", "`PrismaProvider.layer(options)`:"), defaults)
    const sources = [
      "src/prisma/PrismaProvider.ts",
      "src/prisma/internal/preparation.ts",
      "src/prisma/Database.ts",
      "src/prisma/PrismaDriver.ts",
      "src/provider/FromDriver.ts"
    ]
    for (const [name, value] of Object.entries(defaults)) {
      if (name === "url") continue
      assert.include(commented(sources, name), value, name)
      // The others are no values.
      const isValue = !["schema", "directUrl", "preparedStatements", "clock", "longPolling"].includes(name)
      if (isValue) assert.strictEqual(coded(sources, name), value, name)
    }
  })
})

describe("docs/long-polling.md:", () => {
  it("longPolling has these settings and defaults", () => {
    const defaults: Record<keyof FromDriver.LongPolling, string> = {
      enabled: "true",
      fallbackPollInterval: "5 minutes",
      maxWaitTime: "30 seconds",
      timerGracePeriod: "100 milliseconds",
      aggressivePollDuration: "60 seconds",
      aggressiveExitThreshold: "5",
      notifyDeliveryTimeout: "100 milliseconds",
      aggressivePollInterval: "100 milliseconds"
    }
    assert.deepStrictEqual(table("docs/long-polling.md", "## Settings"), defaults)
    for (const [name, value] of Object.entries(defaults)) {
      assert.include(commented(["src/provider/FromDriver.ts"], name), value, name)
      assert.strictEqual(coded(["src/provider/FromDriver.ts"], name), value, name)
    }
  })
})

describe("docs/writing-a-driver.md:", () => {
  it("the suite has these options and defaults", () => {
    const defaults: Record<keyof ProviderTest.Options, string> = {
      time: "\"real\"",
      polling: "\"short\"",
      lockTimeout: "2 seconds",
      shortPollThreshold: "100 milliseconds",
      optimisticTurns: "false",
      topics: "all"
    }
    assert.deepStrictEqual(table("docs/writing-a-driver.md", "## Options"), defaults)
    for (const [name, value] of Object.entries(defaults)) {
      assert.include(commented(["src/testing/ProviderTest.ts"], name), value.replaceAll("\"", ""), name)
    }
  })
})
