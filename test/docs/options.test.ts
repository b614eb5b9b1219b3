/**
 * Compares the tables of options with the code: every option, and its default.
 */
import { assert, describe, it } from "@effect/vitest"
import type { Outbox } from "duroxide-prisma/outbox"
import type { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import type { FromDriver } from "duroxide-prisma/provider"
import type { Task, TaskWorker } from "duroxide-prisma/tasks"
import type { ProviderTest } from "duroxide-prisma/testing/provider"
import * as Duration from "effect/Duration"
import type * as Environment from "../../src/model/shared/environment.ts"
import * as queueEnvironment from "../../src/model/shared/queueEnvironment.ts"
import * as databaseEnvironment from "../../src/prisma/internal/environment.ts"
import * as runtimeEnvironment from "../../src/runtime/environment.ts"
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

/** What a runtime uses where an option is undefined. */
const unset: Readonly<Record<string, string>> = {
  workerId: "one per runtime",
  build: "a hash of what it serves",
  onMismatch: "block",
  dashboardUrl: "none"
}

const readable = (value: unknown, name: string): string =>
  Duration.isDuration(value)
    ? amount(value)
    : typeof value === "number"
    ? value % 1_048_576 === 0 ? `${value / 1_048_576} MiB` : value.toLocaleString("en-US")
    : value === undefined
    ? unset[name]!
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

describe("docs/configuration.md: the meaning of options:", () => {
  it("RuntimeConfig.layer has these options and defaults", () => {
    assert.deepStrictEqual(
      table("docs/configuration.md", "`RuntimeConfig.layer(options)`:"),
      Object.fromEntries(Object.entries(settings.defaults).map(([name, value]) => [name, readable(value, name)]))
    )
  })

  it("PrismaProvider.layer has these options and defaults", () => {
    const defaults: Record<keyof PrismaProvider.Options, string> = {
      url: "–",
      pool: "–",
      tls: "of the URL",
      schema: "public",
      migrate: "apply",
      allowAhead: "false",
      directUrl: "url",
      maxConnections: "10",
      checkoutTimeout: "30 seconds",
      statementTimeout: "30 seconds",
      idleTimeout: "10 minutes",
      maxLifetime: "30 minutes",
      applicationName: "duroxide-prisma",
      preparedStatements: "true",
      clock: "database",
      longPolling: "on",
      lanes: "2",
      maxBatch: "64"
    }
    assert.deepStrictEqual(table("docs/configuration.md", "`PrismaProvider.layer(options)`:"), defaults)
    const sources = [
      "src/prisma/PrismaProvider.ts",
      "src/prisma/internal/preparation.ts",
      "src/prisma/Database.ts",
      "src/prisma/PrismaDriver.ts",
      "src/provider/FromDriver.ts"
    ]
    for (const [name, value] of Object.entries(defaults)) {
      if (name === "url" || name === "pool") continue
      assert.include(commented(sources, name), value, name)
      // The others are no values.
      const isValue = !["tls", "schema", "directUrl", "preparedStatements", "clock", "longPolling"].includes(name)
      if (isValue) assert.strictEqual(coded(sources, name), value, name)
    }
  })
})

describe("docs/configuration.md: waking:", () => {
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
    assert.deepStrictEqual(
      table("docs/configuration.md", "`longPolling` of `PrismaProvider.layer` and `FromDriver.layer`:"),
      defaults
    )
    for (const [name, value] of Object.entries(defaults)) {
      assert.include(commented(["src/provider/FromDriver.ts"], name), value, name)
      assert.strictEqual(coded(["src/provider/FromDriver.ts"], name), value, name)
    }
  })
})

describe("docs/configuration.md:", () => {
  const page = Docs.read("docs/configuration.md")

  type Table = Environment.Table<Record<string, unknown>>

  /** The rows of all tables: variable, option, value, default. */
  const rows = [...page.matchAll(/^\| `([A-Z_]+)` +\| `(\S+)` +\| (.*?) +\| (.*?) +\|$/gm)]
    .map((row) => row.slice(1).map((cell) => cell.replaceAll("`", "")) as [string, string, string, string])

  const aDuration = "a number and a unit, such as 500ms, 30s, 5m, 1h, 7d or 30 seconds"
  const rowsOf = (table: object, defaultOf: (option: string) => string, module = "") =>
    Object.entries(table as Table).flatMap(([option, variables]) =>
      variables.map(({ allowed, name }) => [
        name,
        module + option,
        allowed.replace(aDuration, "a duration"),
        defaultOf(option)
      ])
    )

  /** What a comment says behind "Defaults to", for options whose default has no object of its own. */
  const documented = (file: string, module = "") => (option: string) => {
    const standard = rows.find(([, name]) => name === module + option)?.[3] ?? "not listed"
    const stated = commented([file], option.replace("longPolling.", ""))
    return stated.startsWith(standard) ? standard : `another default in ${file}: ${stated}`
  }
  const ofRuntime = (option: string) => readable(settings.defaults[option as keyof settings.Settings], option)
  const ofDatabase = (option: string) =>
    option === "url"
      ? "–"
      : ["lanes", "maxBatch"].includes(option)
      ? documented("src/provider/FromDriver.ts")(option)
      : option === "schema" || option === "preparedStatements"
      // They depend on the URL first.
      ? rows.find(([, name]) => name === option)![3]
      : documented(
        ["migrate", "allowAhead", "directUrl"].includes(option)
          ? "src/prisma/PrismaProvider.ts"
          : "src/prisma/Database.ts"
      )(
        option
      )

  const ofModule = (table: object, room: string, module: string) =>
    rowsOf(table, documented(`src/${room}/${module}.ts`, `${module}.`), `${module}.`)

  it("lists each variable that the code reads, with its option, value and default", () => {
    // The types say that no option lacks a variable: those in code alone are left out here.
    const provider: Environment.Table<Omit<PrismaProvider.Options, "clock" | "longPolling" | "pool" | "tls">> =
      databaseEnvironment.provider
    const polling: { readonly [K in keyof FromDriver.LongPolling as `longPolling.${K}`]-?: unknown } =
      databaseEnvironment.longPolling
    const queue: Environment.Table<Omit<PgQueue.Options, "queues" | "clock">> = queueEnvironment.queue
    const publisher: Environment.Table<Omit<Outbox.PublisherOptions, "clock">> = queueEnvironment.publisher
    const worker: Environment.Table<Omit<TaskWorker.Options<ReadonlyArray<Task.Any>>, "tasks">> =
      queueEnvironment.worker
    assert.deepStrictEqual(rows, [
      ...rowsOf(provider, ofDatabase),
      ...rowsOf(databaseEnvironment.credentials, (option) => (option === "credentials" ? "url" : "none")),
      ...rowsOf(polling, documented("src/provider/FromDriver.ts")),
      ...rowsOf(runtimeEnvironment.variables, ofRuntime),
      ...ofModule(queue, "prisma", "PgQueue"),
      ...ofModule(publisher, "outbox", "Outbox"),
      ...ofModule(worker, "tasks", "TaskWorker")
    ])
  })

  it("no variable sets two options that may differ, but for the one that the page explains", () => {
    const names = rows.map(([name]) => name)
    const twice = names.filter((name, i) => names.indexOf(name) !== i)
    assert.deepStrictEqual(twice, ["POSTGRES_LOCK_TIMEOUT_SECS"])
  })

  it(".env.example names only variables of the page", () => {
    const names = [...Docs.read(".env.example").matchAll(/^# ([A-Z_]+)=/gm)].map(([, name]) => name!)
    assert.isAbove(names.length, 3)
    assert.deepStrictEqual(names.filter((name) => !rows.some(([known]) => known === name)), [])
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
