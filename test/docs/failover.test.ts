/**
 * Compares the times of a failover and the options of a read replica in docs/postgresql.md with the code.
 */
import { assert, describe, it } from "@effect/vitest"
import type { ReadReplica } from "duroxide-prisma/prisma"
import * as Docs from "../utils/docs.ts"

/** The value of a constant of the sources. */
const constant = (file: string, name: string): number => {
  const [, value] = new RegExp(String.raw`const ${name} = (?:Duration\.seconds\()?([\d_]+)`).exec(Docs.read(file)) ?? []
  assert.isDefined(value, `${name} of ${file}`)
  return Number(value.replaceAll("_", ""))
}

describe("docs/postgresql.md, Failover:", () => {
  it("its times are those of the code", () => {
    const page = Docs.section("docs/postgresql.md", "Failover").replace(/ +/g, " ")
    const listener = "src/prisma/internal/listenerSession.ts"
    const heartbeat = constant(listener, "heartbeatIntervalMs") / 1000
    const answer = constant(listener, "heartbeatTimeoutMs") / 1000
    const grace = constant("src/prisma/Database.ts", "answerGraceMs") / 1000
    const probe = constant("src/prisma/Database.ts", "keepAliveInitialDelayMillis") / 1000
    for (
      const text of [
        `| a statement under way | ${30 + grace} seconds: its timeout, and ${grace} seconds for the server`,
        `the system probes it after ${probe} seconds without traffic, once per second, ten times`,
        `| an idle connection to a machine that is gone | ${probe + 10} seconds`,
        `| a new connection | ${constant("src/prisma/internal/pool.ts", "connectTimeoutMs") / 1000} seconds |`,
        `| the connection that listens | ${heartbeat + answer} seconds: an empty query each ${heartbeat} seconds, ` +
        `and ${answer} for the answer; or ${
          constant("src/prisma/internal/listening.ts", "echoTimeoutMs") / 1000
        } seconds`,
        `claims are tried again after pauses of up to ${
          constant("src/runtime/claims.ts", "longestClaimDelay")
        } seconds`,
        `tried again after at most ${constant("src/provider/shared/unstored.ts", "longestStoreDelay")} seconds`
      ]
    ) assert.include(page, text)
  })
})

describe("docs/postgresql.md, Read replicas:", () => {
  it("has the options of a read replica", () => {
    const options: Record<keyof ReadReplica.Options, true> = {
      url: true,
      schema: true,
      maxLag: true,
      fallback: true,
      maxConnections: true,
      applicationName: true,
      checkoutTimeout: true,
      statementTimeout: true,
      idleTimeout: true,
      maxLifetime: true,
      preparedStatements: true,
      tls: true
    }
    const section = Docs.section("docs/postgresql.md", "Read replicas")
    const [table] = section.slice(section.indexOf("\n| Option")).trim().split("\n\n")
    const names = table!.split("\n").slice(2).flatMap((row) =>
      [...row.split("|")[1]!.matchAll(/`(\w+)`/g)].map(([, name]) => name!)
    )
    assert.deepStrictEqual(names.toSorted(), Object.keys(options).toSorted())
  })
})
