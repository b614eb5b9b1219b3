import { assert, describe, it } from "@effect/vitest"
import { Client, Metrics } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as net from "node:net"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as ReadReplica from "../../src/prisma/ReadReplica.ts"
import type { ProviderError } from "../../src/provider/ProviderError.ts"
import * as Cli from "../cli/cli.ts"
import { FiveSteps, RuntimeLive } from "../programs/steps.ts"
import { isolated, values } from "../utils/metrics.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as ServerPair from "../utils/serverPair.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const idsOf = (reads: Pick<Admin.Admin["Service"], "list">) =>
  Effect.map(reads.list(), ({ instances }) => instances.map(({ instanceId }) => instanceId))

/** A runtime, a client and `Admin` on the primary, with this replica. */
const app = (url: string, replica: ReadReplica.Options) =>
  RuntimeLive.pipe(
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none" })),
    Layer.provideMerge(ReadReplica.layer(replica)),
    Layer.provideMerge(Logger.layer([]))
  )

const silentServer = Effect.map(
  Effect.acquireRelease(
    Effect.promise(() =>
      new Promise<{ readonly server: net.Server; readonly sockets: Array<net.Socket> }>((resolve) => {
        const sockets: Array<net.Socket> = []
        const server = net.createServer((socket) => void sockets.push(socket.on("error", () => {}).resume()))
        server.listen(0, "127.0.0.1", () => resolve({ server, sockets }))
      })
    ),
    ({ server, sockets }) =>
      Effect.sync(() => {
        server.close()
        for (const socket of sockets) socket.destroy()
      })
  ),
  ({ server, sockets }) => ({
    accepted: () => sockets.length,
    url: (like: string) => {
      const url = new URL(like)
      url.hostname = "127.0.0.1"
      url.port = String((server.address() as net.AddressInfo).port)
      return url.toString()
    }
  })
)

const run = (instanceId: string) =>
  Effect.flatMap(Client.Client, (client) => client.execute(FiveSteps, { instanceId, payload: 1 }))

describe("A read replica", () => {
  it.live(
    "answers the reads of Admin, with its lag; all else goes to the primary",
    () =>
      Effect.gen(function*() {
        const { primary, standby } = yield* ServerPair.make
        yield* Effect.provide(Migrator.migrate({ url: primary.url }), Logger.layer([]))
        yield* primary.sql("CREATE EXTENSION pg_stat_statements")
        yield* Effect.gen(function*() {
          const admin = yield* Admin.Admin
          const { lagMs } = yield* ReadReplica.ReadReplica
          const caughtUp = waitUntil(Effect.map(lagMs, (lagMs) => lagMs === 0))
          yield* run("one")
          yield* caughtUp
          assert.deepStrictEqual(yield* idsOf(admin), ["one"])
          assert.strictEqual((yield* admin.getInstanceInfo("one")).status, "Completed")
          assert.strictEqual((yield* admin.readHistory("one")).at(-1)!._tag, "OrchestrationCompleted")

          // It replays nothing further: instances run nevertheless, and are not seen.
          yield* standby.sql("SELECT pg_wal_replay_pause()")
          yield* run("two")
          assert.deepStrictEqual(yield* idsOf(admin), ["one"])
          assert.strictEqual((yield* Effect.flip(admin.readHistory("two"))).reason._tag, "InstanceNotFound")
          const before = (yield* lagMs)!
          yield* waitUntil(Effect.map(lagMs, (lagMs) => lagMs! > before))
          yield* waitUntil(Effect.map(values(Metrics.replicaLag), ({ "": lag }) => lag! > before / 1000))

          // A deletion sees what it deletes, and reads of the replica do not see that it is gone.
          assert.strictEqual((yield* admin.deleteInstance("two")).instancesDeleted, 1)
          assert.strictEqual((yield* admin.deleteInstance("one")).instancesDeleted, 1)
          assert.deepStrictEqual(yield* idsOf(admin), ["one"])
          yield* admin.recordAction({ actor: "ada", action: "delete", target: "one", details: "", outcome: "done" })
          assert.deepStrictEqual((yield* admin.listActions()).actions, [])
          yield* standby.sql("SELECT pg_wal_replay_resume()")
          yield* caughtUp
          assert.deepStrictEqual(yield* idsOf(admin), [])
          assert.lengthOf((yield* admin.listActions()).actions, 1)

          const functions = Effect.fnUntraced(function*({ sql }: ServerPair.Server) {
            const rows = yield* sql<{ name: string }>(
              "SELECT DISTINCT substring(query FROM 'dx_\\w+') AS name FROM pg_stat_statements WHERE query LIKE '%.dx\\_%'"
            )
            return rows.map(({ name }) => name).sort()
          })
          assert.deepStrictEqual(yield* functions(standby), [
            "dx_groups_of_instances",
            "dx_read_history",
            "dx_read_instances"
          ])
          assert.include(yield* functions(primary), "dx_fetch_orchestration_items")

          // The commands that only read take its URL in place of the primary's.
          yield* run("seen")
          yield* caughtUp
          for (
            const [command, shown] of [
              ["status", /^instances +1: 1 Completed$/m],
              ["list", /^seen /m],
              ["show seen", /^status +Completed$/m],
              ["queues", /^nothing waits$/m],
              ["migrate --verify", /^up to date/m]
            ] as const
          ) {
            const { exitCode, stderr, stdout } = yield* Cli.run(`${command} --url ${standby.url}`)
            assert.strictEqual(exitCode, 0, stderr)
            assert.match(stdout, shown)
          }
          yield* admin.deleteInstance("seen")
        }).pipe(Effect.provide(app(primary.url, { url: standby.url })))

        // One that is too far behind, and one that is gone.
        yield* standby.sql("SELECT pg_wal_replay_pause()")
        yield* Effect.gen(function*() {
          const admin = yield* Admin.Admin
          yield* run("three")
          const { reason } = yield* Effect.flip(idsOf(admin))
          assert.strictEqual(reason._tag, "Unavailable")
          assert.include(reason.message, "behind; maxLag is 0 ms")
        }).pipe(Effect.provide(app(primary.url, { url: standby.url, maxLag: 0 })))
        yield* Effect.gen(function*() {
          const admin = yield* Admin.Admin
          assert.deepStrictEqual(yield* idsOf(admin), ["three"])
          assert.strictEqual((yield* Effect.flip(admin.readHistory("four"))).reason._tag, "InstanceNotFound")
        }).pipe(Effect.provide(app(primary.url, { url: standby.url, maxLag: 0, fallback: "primary" })))
        yield* primary.sql("ALTER SYSTEM SET synchronous_standby_names = ''")
        yield* primary.sql("SELECT pg_reload_conf()")
        yield* Effect.gen(function*() {
          const admin = yield* Admin.Admin
          assert.deepStrictEqual(yield* idsOf(admin), [])
          yield* standby.kill
          assert.strictEqual((yield* Effect.flip(idsOf(admin))).reason._tag, "ConnectionLost")
          yield* run("five")
          yield* standby.startAsStandby
          yield* waitUntil(Effect.map(idsOf(admin), (ids) => ids.length === 2))
        }).pipe(Effect.provide(app(primary.url, { url: standby.url })))
      }).pipe(Effect.scoped, isolated)
  )

  it.live("whose URL leads to a primary has no lag, and sessions that take no writes", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const { lagMs, reads } = yield* ReadReplica.make({ url, maxLag: 0 })
      assert.isNull(yield* lagMs)
      assert.deepStrictEqual(yield* idsOf(reads), [])
      yield* sql(
        `CREATE OR REPLACE FUNCTION dx_read_history(
           p_instance_id text, p_execution_id bigint, p_after bigint, p_max_bytes bigint
         )
         RETURNS TABLE (out_execution_id bigint, out_event_id bigint, out_event_data text, out_is_last boolean)
         LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
         BEGIN INSERT INTO sessions VALUES ('written', '', 0, 0); END $$`
      )
      const { reason } = yield* Effect.flip(reads.readHistoryWithExecutionId("any", 1))
      assert.deepInclude(reason, { _tag: "Unavailable", sqlState: "25006" })
      assert.deepStrictEqual(yield* sql("SELECT FROM sessions"), [])
    }).pipe(Effect.scoped, isolated))

  it.live("that cannot be reached fails each read, and does not keep the process from starting", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const nowhere = new URL(url)
      nowhere.port = "1"
      const replica = yield* ReadReplica.make({ url: nowhere.toString() })
      const calls: ReadonlyArray<Effect.Effect<unknown, ProviderError>> = [
        replica.lagMs,
        idsOf(replica.reads),
        replica.reads.listChildren("any")
      ]
      for (const call of calls) {
        const { operation, reason } = yield* Effect.flip(call)
        assert.deepStrictEqual([operation, reason._tag], ["connect", "ConnectionLost"])
      }
    }).pipe(Effect.scoped, isolated))

  it.live("that accepts connections and never answers: readers that come together wait for one attempt", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const connections = Effect.fnUntraced(function*(readers: number) {
        const silent = yield* silentServer
        const replica = ReadReplica.layer({ url: silent.url(url), checkoutTimeout: "300 millis", fallback: "primary" })
        const context = yield* Layer.build(
          PrismaProvider.layer({ url, migrate: "none" }).pipe(Layer.provide([replica, Logger.layer([])]))
        )
        const admin = Context.get(context, Admin.Admin)
        const lists = Array.from({ length: readers }, () => idsOf(admin))
        const found = yield* Effect.all(lists, { concurrency: "unbounded" })
        assert.deepStrictEqual(found, lists.map(() => []))
        return silent.accepted()
      })
      const one = yield* connections(1)
      assert.isAbove(one, 0)
      assert.strictEqual(yield* connections(10), one)
    }).pipe(Effect.scoped, isolated))

  it.live("takes its options from configuration", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const provider = ConfigProvider.fromUnknown({ READ_DATABASE_URL: url })
      const ids = yield* Effect.flatMap(ReadReplica.ReadReplica, ({ reads }) => idsOf(reads)).pipe(
        Effect.provide(ReadReplica.layerConfig({ url: Config.Redacted("READ_DATABASE_URL") })),
        Effect.provideService(ConfigProvider.ConfigProvider, provider)
      )
      assert.deepStrictEqual(ids, [])
    }).pipe(Effect.scoped, isolated))

  it.live("with options that cannot work is refused", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      for (const options of [{ url: "mysql://x" }, { url, maxLag: -1 }]) {
        const { reason } = yield* Effect.flip(ReadReplica.make(options))
        assert.strictEqual(reason._tag, "ConfigurationInvalid")
      }
    }).pipe(Effect.scoped, isolated))
})
