import { assert, describe, it } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { spawnSync } from "node:child_process"
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { parse, parseAllDocuments } from "yaml"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as Session from "../../src/prisma/shared/directSession.ts"
import * as settings from "../../src/runtime/settings.ts"
import * as Command from "../utils/command.ts"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const page = Docs.read("docs/deployment.md")
const folder = fileURLToPath(new URL("../../examples/deployment/", import.meta.url))

/** The rows of the table that begins with this cell, as cells without code marks. */
const table = (first: string): ReadonlyArray<ReadonlyArray<string>> => {
  const rows = page.slice(page.search(new RegExp(String.raw`^ *\| ${first} +\|`, "m"))).split("\n\n")[0]!.split("\n")
  return rows.slice(2).map((row) => row.split("|").slice(1, -1).map((cell) => cell.trim().replaceAll("`", "")))
}

describe("docs/deployment.md:", () => {
  it("connections: the arithmetic of each size", () => {
    const rows = page.split("| Size ")[1]!.split("\n\n")[0]!.split("\n").slice(2)
    assert.lengthOf(rows, 4)
    for (const row of rows) {
      const [allowed, users, processes, maxConnections, used, left] = row.split("|").slice(3, -1).map(Number)
      assert.strictEqual(users, allowed! - 15, row)
      assert.strictEqual(used, processes! * (maxConnections! + 2) + 2, row)
      assert.strictEqual(left, users! - used!, row)
      assert.isAtLeast(left!, 10, "ten in reserve")
    }
  })

  it("costs: each size is the sum of its parts", () => {
    const rows = page.split("\n| Size ").at(-1)!.split("\n\n")[0]!.split("\n").slice(2)
    assert.lengthOf(rows, 4)
    for (const row of rows) {
      const [computing, storage, standby, together] = row.split("|").slice(2, -1).map((cell) =>
        cell.trim() === "–" ? null : Number(cell)
      )
      if (standby !== null) assert.strictEqual(standby, computing! + storage!, row)
      assert.strictEqual(together, computing! + storage! + (standby ?? 0), row)
    }
  })

  it("its limits of the roles are those of sessions.sql, which the server accepts", () => {
    const statements = readFileSync(join(folder, "sessions.sql"), "utf8").replace(/^--.*\n/gm, "")
    assert.include(Docs.blocks(page, "text").map(({ code }) => `${code}\n`), statements)
  })

  it.live("sessions.sql: the server accepts it", () =>
    Effect.gen(function*() {
      const { sql } = yield* PgServer.emptyDatabase
      const prefix = `deployment_${process.pid}`
      const text = readFileSync(join(folder, "sessions.sql"), "utf8").replaceAll("duroxide_", `${prefix}_`)
      const roles = [...new Set(text.match(new RegExp(`${prefix}_\\w+`, "g")))]
      assert.lengthOf(roles, 4)
      yield* Effect.addFinalizer(() => Effect.forEach(roles, (role) => sql(`DROP ROLE IF EXISTS ${role}`)))
      for (const role of roles) yield* sql(`CREATE ROLE ${role}`)
      for (const statement of text.replace(/^--.*\n/gm, "").trim().split("\n")) yield* sql(statement)
      const limited = yield* sql(`SELECT FROM pg_roles WHERE rolname LIKE '${prefix}%' AND rolconfig IS NOT NULL`)
      assert.lengthOf(limited, 4)
    }).pipe(Effect.scoped))

  it.live("sessions.sql: a migration keeps the lock_timeout of its role", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.emptyDatabase
      const limited = new URL(url)
      limited.searchParams.set("options", "-c lock_timeout=60000")
      const session = yield* Session.openDirect({ url: limited.href })
      yield* Session.lock(session, 1000)
      assert.deepStrictEqual(yield* session.run("SHOW lock_timeout"), [{ lock_timeout: "1min" }])
    }).pipe(Effect.scoped))

  it.live("monitoring: the server answers its queries", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const queries = new Map(Docs.blocks(page, "sql").map(({ code, heading }) => [heading, code]))
      assert.lengthOf([...queries.keys()], 5)
      const client = yield* PgServer.connect(url)
      const rows = new Map<string, ReadonlyArray<Record<string, unknown>>>()
      for (const [heading, code] of queries) {
        rows.set(heading, (yield* Effect.promise(() => client.query(code))).rows)
      }
      assert.isAbove(rows.get("Connections by process")!.length, 0)
      const [room] = rows.get("Room left")!
      assert.strictEqual(Number(room!["remaining"]), Number(room!["allowed"]) - Number(room!["used"]))
      const tables = new Set(rows.get("Dead rows of the queues")!.map((row) => row["relname"]))
      assert.lengthOf([...tables], 5)
      const unused = rows.get("Unused indexes")!
      assert.isAbove(unused.length, 5)
      const keys = unused.filter(({ index_name }) => String(index_name).endsWith("_pkey"))
      assert.deepStrictEqual(keys, [], "keys are used by writes")
    }).pipe(Effect.scoped))

  it.live("indexes of one's own: the check at the start takes no notice, and the query finds them", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* sql("CREATE INDEX CONCURRENTLY app_instances_by_version ON instances (orchestration_version)")
      const { code } = Docs.blocks(page, "sql").find(({ heading }) => heading === "Unused indexes")!
      const found = yield* sql(code)
      assert.include(found.map(({ index_name }) => index_name), "app_instances_by_version")
      yield* Migrator.verify({ url })
    }).pipe(Effect.scoped))

  it.live("a machine of one's own: the server knows each setting, and which need a restart", () =>
    Effect.gen(function*() {
      const { sql } = yield* PgServer.emptyDatabase
      const rows = table("Setting")
      assert.lengthOf(rows, 3)
      for (const [name, , restart] of rows) {
        const [found] = yield* sql("SELECT context FROM pg_settings WHERE name = $1", [name])
        assert.strictEqual(found!["context"] === "postmaster" ? "yes" : "no", restart, name)
      }
    }).pipe(Effect.scoped))
})

describe("azure.sh:", () => {
  /** Runs the script with a command `az` that writes down its arguments; `show` succeeds when `exists`. */
  const azure = (size: string, exists: boolean, administrators = exists ? 1 : 0) => {
    const bin = mkdtempSync(join(tmpdir(), "azure-"))
    try {
      writeFileSync(
        join(bin, "az"),
        `#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
case "$*" in
  *"ad signed-in-user"*) echo someone;;
  *"microsoft-entra-admin list"*) echo ${administrators};;
  *" show "*) ${exists ? "true" : "case \"$*\" in *--query*) true;; *) exit 3;; esac"};;
esac
`
      )
      chmodSync(join(bin, "az"), 0o755)
      const calls = join(bin, "calls")
      const { status, stderr } = spawnSync("bash", [join(folder, "azure.sh")], {
        encoding: "utf8",
        env: {
          PATH: `${bin}:${process.env["PATH"]}`,
          CALLS: calls,
          RESOURCE_GROUP: "app",
          LOCATION: "westeurope",
          SERVER: "app-db",
          VNET: "app-net",
          SUBNET: "postgres",
          SIZE: size
        }
      })
      return { status, stderr, calls: status === 0 ? readFileSync(calls, "utf8").trim().split("\n") : [] }
    } finally {
      rmSync(bin, { recursive: true })
    }
  }
  const parameters = (calls: ReadonlyArray<string>) =>
    calls.flatMap((call) => {
      const [, name, value] = /parameter set .*--name (\S+) --value (\S+)/.exec(call) ?? []
      return name === undefined ? [] : [[name, value!] as const]
    })

  it("creates the server of each size of the table, without a password and a public address", () => {
    const rows = page.split("| Size ")[1]!.split("\n\n")[0]!.split("\n").slice(2)
    for (const row of rows) {
      const [size, server] = row.split("|").slice(1, 3).map((cell) => cell.trim())
      const { calls, status, stderr } = azure(size!, false)
      assert.strictEqual(status, 0, stderr)
      const create = calls.find((call) => call.includes("flexible-server create"))!
      assert.include(create, `--sku-name ${/`(\w+)`/.exec(server!)![1]}`)
      assert.include(create, "--password-auth Disabled")
      assert.include(create, "--vnet app-net --subnet postgres")
      assert.include(create, `--zonal-resiliency ${size === "development" ? "Disabled" : "Enabled"}`)
      const [, zone] = /--private-dns-zone (\S+)/.exec(create)!
      const before = calls.slice(0, calls.indexOf(create)).join("\n")
      assert.include(before, "--name postgres --delegations Microsoft.DBforPostgreSQL/flexibleServers")
      assert.include(before, `private-dns zone create --output none --resource-group app --name ${zone!}`)
      assert.include(before, `--zone-name ${zone!} --name app-net --virtual-network app-net`)
      assert.notMatch(create, /--admin-password|--public-access/)
      const pooler = parameters(calls).filter(([name]) => name.startsWith("pgbouncer."))
      assert.strictEqual(pooler.length > 0, size !== "development")
    }
  })

  it("run again, it leaves what exists and sets the parameters anew", () => {
    const { calls, status, stderr } = azure("small", true)
    assert.strictEqual(status, 0, stderr)
    assert.deepStrictEqual(calls.filter((call) => / create /.test(call)), [])
    assert.isAbove(parameters(calls).length, 5)
  })

  it("run again after a failure behind the server, it creates the administrator", () => {
    const created = (administrators: number, exists: boolean) =>
      azure("small", exists, administrators).calls.filter((call) => call.includes("microsoft-entra-admin create"))
    const [create, ...more] = created(0, true)
    assert.match(create!, /--server-name app-db --display-name someone --object-id someone --type User$/)
    assert.deepStrictEqual(more, [])
    assert.deepStrictEqual(created(0, false), [create!])
    assert.deepStrictEqual(created(1, true), [])
  })

  it("an unknown size, and a missing setting: refused before anything is created", () => {
    assert.strictEqual(azure("huge", false).status, 2)
    const { status, stderr } = spawnSync("bash", [join(folder, "azure.sh")], {
      encoding: "utf8",
      env: { PATH: process.env["PATH"] }
    })
    assert.notStrictEqual(status, 0)
    assert.include(stderr, "RESOURCE_GROUP")
  })

  it.live("its parameters are those of the page, and PostgreSQL takes each without a restart", () =>
    Effect.gen(function*() {
      const { sql } = yield* PgServer.emptyDatabase
      const set = parameters(azure("small", true).calls).filter(([name]) => !name.startsWith("pgbouncer."))
      const listed = table("Parameter").map(([name, value]) => [name!, value!] as const)
      assert.deepStrictEqual(
        set.filter(([name]) => name !== "require_secure_transport"), // Azure's own
        listed
      )
      for (const [name, value] of listed) {
        const [found] = yield* sql<{ context: string; vartype: string; min_val: string; max_val: string }>(
          "SELECT context, vartype, min_val, max_val FROM pg_settings WHERE name = $1",
          [name]
        )
        assert.isDefined(found, name)
        assert.notInclude(["postmaster", "internal"], found.context, name)
        if (found.vartype === "bool") assert.include(["on", "off"], value)
        if (found.min_val !== null) assert.isTrue(Number(found.min_val) <= Number(value), name)
        if (found.max_val !== null) assert.isTrue(Number(found.max_val) >= Number(value), name)
      }
    }).pipe(Effect.scoped))
})

describe("the manifests:", () => {
  const compose = parse(Docs.read("examples/deployment/compose.yaml"), { merge: true })
  const objects = parseAllDocuments(Docs.read("examples/deployment/kubernetes.yaml")).map((one) => one.toJS())
  const kind = (name: string) => objects.find((one) => one.kind === name)
  const pod = () => kind("Deployment").spec.template.spec
  const dockerfile = Docs.read("examples/deployment/Dockerfile")

  it("give a worker the time it takes to end", () => {
    const { activityGracePeriod, shutdownTimeout } = settings.defaults
    const needed = Duration.toSeconds(Duration.sum(shutdownTimeout, activityGracePeriod)) + 10
    assert.isAbove(pod().terminationGracePeriodSeconds, needed)
    assert.strictEqual(compose.services.worker.stop_grace_period, `${pod().terminationGracePeriodSeconds}s`)
    assert.include(page, `\`terminationGracePeriodSeconds\` is ${pod().terminationGracePeriodSeconds}`)
  })

  it("ask the worker for pages it has, and never restart it because of the database", () => {
    const worker = Docs.read("examples/deployment/worker.ts")
    const [container] = pod().containers
    for (const probe of [container.startupProbe, container.livenessProbe]) {
      assert.strictEqual(probe.httpGet.path, "/live")
      assert.strictEqual(probe.httpGet.port, container.ports[0].containerPort)
    }
    assert.include(dockerfile, ":8080/live'")
    assert.include(worker, "page === \"live\"")
    assert.include(worker, "page === \"metrics\"")
    assert.include(dockerfile, "EXPOSE 8080")
  })

  it("migrate with the command line, before the workers start", () => {
    const command = ["node", "node_modules/duroxide-prisma/dist/cli/main.js", "migrate"]
    assert.deepStrictEqual(compose.services.migrate.command, command)
    assert.deepStrictEqual(kind("Job").spec.template.spec.containers[0].command, command)
    assert.deepStrictEqual(compose.services.worker.depends_on, {
      migrate: { condition: "service_completed_successfully" }
    })
    const { bin } = JSON.parse(Docs.read("package.json"))
    assert.strictEqual(bin["duroxide-prisma"], "./dist/cli/main.js")
  })

  it("without TLS only where the manifest says so, because the server of the image has none", () => {
    const { DATABASE_URL: url } = compose.services.worker.environment
    assert.strictEqual(new URL(url).searchParams.get("sslmode"), "disable")
    assert.deepStrictEqual(compose.services.migrate.environment, compose.services.worker.environment)
  })

  it("scale by a gauge there is, within limits", () => {
    const { spec } = kind("ScaledObject")
    const [, metric] = /max\((\w+)\)/.exec(spec.triggers[0].metadata.query)!
    assert.include(Docs.read("docs/observability.md"), `\`${metric}\``)
    assert.strictEqual(spec.scaleTargetRef.name, kind("Deployment").metadata.name)
    assert.include(page, `within ${spec.minReplicaCount} and ${spec.maxReplicaCount}`)
    assert.include(page, `over target (${spec.triggers[0].metadata.threshold} seconds)`)
  })
})

describe("worker.ts", () => {
  it.live(
    "as the manifests run it: answers its probes, works, and ends with 0 on SIGTERM",
    () =>
      Effect.gen(function*() {
        const { url } = yield* PgServer.database
        const port = yield* Command.freePort
        const worker = yield* Command.start(["node", "build/examples/deployment/worker.js"], {
          DATABASE_URL: url,
          PORT: String(port)
        })
        const ask = (path: string, method = "GET") =>
          Effect.promise(() =>
            fetch(`http://127.0.0.1:${port}${path}`, { method }).then(
              async (answer) => ({ status: answer.status, body: await answer.text() }),
              () => undefined
            )
          )
        yield* Effect.repeat(ask("/live"), { until: (answer) => answer?.status === 200 })
        assert.deepStrictEqual(yield* ask("/welcome/Ada", "POST"), { status: 200, body: "Hello, Ada!" })
        const ready = yield* ask("/ready")
        assert.strictEqual(ready?.status, 200, ready?.body)
        assert.include((yield* ask("/metrics"))!.body, "duroxide_orchestration_starts_total")
        assert.strictEqual((yield* ask("/nothing"))?.status, 404)
        worker.child.kill("SIGTERM")
        assert.strictEqual(yield* worker.end, 0, worker.output())
        assert.notInclude(worker.output(), new URL(url).password || "no password to look for")
      }).pipe(Effect.scoped)
  )
})
