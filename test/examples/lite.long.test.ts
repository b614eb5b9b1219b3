import { assert, describe, it } from "@effect/vitest"
import { Delivery } from "duroxide-prisma/recipes/deliveries"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import { existsSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { vi } from "vitest"
import { parse } from "yaml"
import { audit } from "../../examples/lite/demo/audit.ts"
import * as Source from "../../examples/lite/demo/source.ts"
import { run } from "../../examples/lite/demo/stack.ts"
import { forward } from "../../examples/lite/services/rpcEgressGateway.ts"
import * as Databases from "../../examples/lite/shared/databases.ts"
import * as Http from "../../examples/lite/shared/http.ts"
import { ObjectStore } from "../../examples/lite/shared/objectStore.ts"
import * as Readings from "../../examples/lite/shared/readings.ts"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const file = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url))
const read = (name: string) => readFileSync(file(`examples/lite/${name}`), "utf8")

describe("lite: the data set", () => {
  const source = Source.make({ seed: 7, records: 1500, batchSize: 1000 })

  it("is the same for the same seed, and another one for another", () => {
    assert.deepStrictEqual(Source.make({ seed: 7, records: 1500, batchSize: 1000 }), source)
    assert.notDeepEqual(Source.make({ seed: 8, records: 1500, batchSize: 1000 }).batches, source.batches)
    assert.deepStrictEqual(source.batches.map(({ records }) => records), [1000, 500])
  })

  it("is the same after its way through NDJSON and Parquet", async () => {
    const records = source.batches.flatMap(({ ndjson }) => Result.getOrThrow(Readings.parse(ndjson)))
    assert.lengthOf(new Set(records.map(({ at, meter }) => `${meter} ${at.toISOString()}`)), 1500)
    assert.deepStrictEqual(await Readings.fromParquet(Readings.toParquet(records)), records)
    const total = records.reduce((sum, { wattHours }) => sum + wattHours, 0)
    assert.strictEqual([...source.wattHours.values()].reduce((sum, city) => sum + city, 0), total)
  })

  it("parse: says which line is not a record, and does not quote it", () => {
    const parsed = Readings.parse(`${source.batches[1]!.ndjson}{"meter":"m-1","at":"yesterday"}\n`)
    assert.deepStrictEqual(parsed, Result.fail("line 501 is not a reading"))
  })
})

describe("lite: HTTP", () => {
  const call = (request: Request, routes: Readonly<Record<string, Http.Route<never>>>) =>
    Effect.map(Http.router(routes)(request), ({ status }) => status)

  it.effect("router: finds the route and its parts, answers problems with their status and failures with 503", () =>
    Effect.gen(function*() {
      const routes: Record<string, Http.Route<never>> = {
        "GET /a/:name/b": ({ path }) => Effect.succeed(Response.json(path)),
        "GET /problem": () => Effect.fail(new Http.Problem({ status: 409, problem: "no" })),
        "GET /broken": () => Effect.die(new Error("broken"))
      }
      const found = yield* Http.router(routes)(new Request("http://here/a/x%20y/b"))
      assert.deepStrictEqual(yield* Effect.promise(() => found.json()), { name: "x y" })
      assert.strictEqual(yield* call(new Request("http://here/a//b"), routes), 404)
      assert.strictEqual(yield* call(new Request("http://here/a/x/b", { method: "POST" }), routes), 404)
      assert.strictEqual(yield* call(new Request("http://here/problem"), routes), 409)
      assert.strictEqual(yield* call(new Request("http://here/broken"), routes), 503)
    }).pipe(Effect.provide(Logger.layer([]))))

  it.live("the egress gateway passes requests on to origins of its list, and to no other", () =>
    Effect.gen(function*() {
      const seen: Array<string> = []
      const port = yield* Http.serve((request) =>
        Effect.promise(async () => {
          seen.push(`${request.method} ${request.headers.get("webhook-id")} ${await request.text()}`)
          return new Response(null, { status: 204 })
        }), 0)
      const routes = { "POST /": forward(new Set([`http://127.0.0.1:${port}`])) }
      const to = (url: string) =>
        call(
          new Request("http://egress/", {
            method: "POST",
            headers: { "x-egress-url": url, "webhook-id": "w-1" },
            body: "hello"
          }),
          routes
        )
      assert.strictEqual(yield* to(`http://127.0.0.1:${port}/deliveries`), 204)
      assert.strictEqual(yield* to(`http://localhost:${port}/deliveries`), 403)
      assert.strictEqual(yield* to("http://169.254.169.254/latest/meta-data"), 403)
      assert.strictEqual(yield* to("deliveries"), 400)
      assert.deepStrictEqual(seen, ["POST w-1 hello"])
    }).pipe(Effect.scoped, Effect.provide(Logger.layer([]))))
})

interface Compose {
  readonly services: Record<string, {
    readonly image: string
    readonly build?: { readonly context: string; readonly dockerfile: string }
    readonly command?: ReadonlyArray<string>
    readonly environment: Record<string, string | number>
    readonly volumes?: ReadonlyArray<string>
    readonly networks: ReadonlyArray<string>
    readonly depends_on?: Record<string, { readonly condition: string }>
    readonly healthcheck?: { readonly test: ReadonlyArray<string> }
  }>
}

describe("lite: the stack", () => {
  it.live(
    "ingests, converts, activates, queries and delivers once each, though services are killed and paused",
    () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const address = new URL(url)
        address.searchParams.delete("schema")
        let printed = ""
        yield* run({
          url: Redacted.make(address.toString()),
          queue: "postgresql",
          records: 6000,
          folder: file("build/examples/lite"),
          print: (text) => {
            printed += text
          }
        })
        assert.match(printed, /^records generated +6,000 /m)
        assert.match(printed, /^ {2}committed +60 /m)
        assert.match(printed, /^records queried +6,000 +6,000 distinct/m)
        assert.match(printed, /^stale commits rejected +[1-9]/m)
        assert.match(printed, /^ {2}lost +[2-9] /m)
        assert.match(printed, /^deliveries +1 /m)

        // The same by other means than those of the client.
        const [counts] = yield* sql(`
        SELECT (SELECT count(*)::int FROM lite_state.queue_dataset_batches WHERE status = 'Committed') AS committed,
               (SELECT sum(output_record_count)::int FROM lite_state.queue_dataset_batches) AS records,
               (SELECT active_version::int FROM lite_state.queue_datasets) AS version,
               (SELECT count(*)::int FROM lite_state.queue_tasks AS t
                WHERE t.status <> 'Completed'
                  AND t.name <> 'Census') AS "notOnce"`)
        assert.deepStrictEqual(counts, { committed: 60, records: 6000, version: 1, notOnce: 0 })

        // The cron fired until the services had stopped: the last count may have been left, with its message.
        yield* sql("DELETE FROM lite_state.queue_tasks WHERE name = 'Census' AND ended_at IS NULL")
        yield* sql("UPDATE lite_state.queue_outbox SET sent_at = now() WHERE sent_at IS NULL")

        // An audit that reports nothing must be able to report something.
        const outputs = yield* sql<{ uri: string }>("SELECT output_uri AS uri FROM lite_state.queue_dataset_batches")
        const source = Source.make({ seed: 7, records: 6000, batchSize: 100 })
        const cities = Object.fromEntries(
          [...source.wattHours].map(([city, wattHours]) => [city, { records: 0, wattHours }])
        )
        const summary = { version: 1, files: 60, records: 6001, distinct: 6000, cities }
        yield* sql(
          "UPDATE lite_state.queue_dataset_batches SET output_record_count = 99 WHERE batch_uri LIKE '%0007%'"
        )
        yield* sql(
          "UPDATE lite_state.queue_outbox SET sent_at = NULL WHERE id = (SELECT min(id) FROM lite_state.queue_outbox)"
        )
        const connections = (schema: string) => Databases.open(Redacted.make(`${address.toString()}?schema=${schema}`))
        const report = yield* audit(source, {
          version: 1,
          sentTwice: 0,
          summary,
          deliveries: [],
          forged: 0,
          webhooksSent: 2,
          elapsedMs: 0
        }, 0).pipe(
          Effect.provideServiceEffect(Databases.State, connections("lite_state")),
          Effect.provideServiceEffect(Databases.AppData, connections("lite_data")),
          Effect.provideService(ObjectStore, {
            put: () => Effect.die("not used"),
            get: () => Effect.die("not used"),
            list: () => Effect.succeed(outputs.slice(1).map(({ uri }) => uri)),
            createBucket: Effect.void
          })
        )
        assert.deepStrictEqual(report.problems, [
          "number of committed records is 5999, expected 6000",
          "number of committed files that are missing is 1, expected 0",
          "number of records queried is 6001, expected 6000",
          "number of unsent outbox rows is 1, expected 0",
          "number of webhooks delivered is 0, expected 1"
        ])
      }).pipe(Effect.scoped)
  )

  it.live("the Lambda function creates a task for an occurrence and for a webhook, once, and refuses what is not signed", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const secret = "whsec_ZGV2ZWxvcG1lbnQgb25seSwgMjQgYnl0ZXM="
      vi.stubEnv("STATE_DATABASE_URL", url)
      vi.stubEnv("WEBHOOK_SECRET", secret)
      yield* Effect.addFinalizer(() => Effect.sync(() => vi.unstubAllEnvs()))
      const lambda = yield* Effect.promise(() => import("../../examples/lite/services/lambda.ts"))
      yield* Effect.addFinalizer(() => Effect.promise(() => lambda.runtime.dispose()))
      const send = (event: Parameters<typeof lambda.handler>[0]) => Effect.promise(() => lambda.handler(event))
      yield* send({ schedules: "due" })
      // As if it had been called for the last time two hours ago.
      yield* sql("UPDATE schedules SET fired_until = fired_until - interval '2 hours', look_at = now()")
      for (let i = 0; i < 2; i++) yield* send({ schedules: "due" })

      const body = `{"reason":"webhook"}`
      const signed = yield* Delivery.sign({ id: "w-1", body, secret: Redacted.make(secret) })
      const urlCall = (headers: Record<string, string>) => ({
        rawPath: "/webhooks/census",
        headers,
        body: Buffer.from(body).toString("base64"),
        isBase64Encoded: true,
        requestContext: { http: { method: "POST" } }
      })
      for (let i = 0; i < 2; i++) assert.strictEqual((yield* send(urlCall({ ...signed }))).statusCode, 200)
      assert.strictEqual((yield* send(urlCall({ ...signed, "webhook-id": "w-2" }))).statusCode, 401)
      const keys = yield* sql<{ key: string }>("SELECT key FROM queue_tasks WHERE name = 'Census' ORDER BY key")
      assert.lengthOf(keys, 2)
      assert.match(keys[0]!.key, /^schedule\/census\/.*:00:00\.000Z$/)
      assert.strictEqual(keys[1]!.key, "webhook/census/w-1")
      const [messages] = yield* sql("SELECT count(*)::int AS messages FROM queue_messages")
      assert.deepStrictEqual(messages, { messages: 0 })
    }).pipe(Effect.scoped, Effect.provide(Logger.layer([]))))
})

describe("lite: compose.yaml", () => {
  const { services } = parse(read("compose.yaml"), { merge: true }) as Compose
  const names = Object.keys(services)
  const ours = Object.entries(services).filter(([, { build }]) => build !== undefined)

  it("runs every service of the entry file, PostgreSQL and MinIO of fixed versions", () => {
    const entry = [...read("services/main.ts").matchAll(/^ +(\w+): \(\) => import\("(.*)"\),?$/gm)]
    for (const [, , path] of entry) assert.isTrue(existsSync(file(`examples/lite/services/${path}`)), path)
    assert.sameMembers(ours.map(([name]) => name), entry.map(([, name]) => name!))
    for (const [name, { command }] of ours) assert.deepStrictEqual(command, [name])
    assert.match(services["postgres"]!.image, /^postgres:\d+$/)
    assert.match(services["minio"]!.image, /^minio\/minio:RELEASE\./)
    assert.include(read("Dockerfile"), `ENTRYPOINT ["node", "build/examples/lite/services/main.js"]`)
    for (const { build } of Object.values(services)) {
      if (build) assert.isTrue(existsSync(file(`examples/lite/${build.context}/${build.dockerfile}`)))
    }
    for (const [volume] of Object.values(services).flatMap(({ volumes = [] }) => volumes.map((v) => v.split(":")))) {
      assert.isNotEmpty(read(volume!))
    }
  })

  it("gives each service the settings it reads, and addresses of services that it can reach", () => {
    const sources = ["shared/settings.ts", "services/client.ts"].map(read).join("\n")
    const settings = [...sources.matchAll(/Config\.\w+\((?:\[.*\], )?"([A-Z0-9_]+)"\)/g)].map(([, name]) => name!)
    const given = new Set(ours.flatMap(([, { environment }]) => Object.keys(environment)))
    const bySdk = ["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
    assert.deepStrictEqual([...given].filter((name) => !settings.includes(name) && !bySdk.includes(name)), [])
    assert.deepStrictEqual(settings.filter((name) => !given.has(name)), ["SQS_ENDPOINT", "BATCH_SIZE"])
    for (const [name, { environment, networks }] of ours) {
      for (const value of Object.values(environment)) {
        const host = /^(?:http|postgresql):\/\/(?:.*@)?(\w+):\d+/.exec(String(value))?.[1]
        if (host === undefined) continue
        assert.include(names, host, name)
        assert.isTrue(services[host]!.networks.some((network) => networks.includes(network)), `${name} to ${host}`)
      }
    }
  })

  it("starts services when those they need are ready", () => {
    for (const [name, { depends_on = {} }] of ours) {
      assert.isNotEmpty(depends_on, name)
      for (const [needed, { condition }] of Object.entries(depends_on)) {
        assert.include(names, needed)
        assert.strictEqual(condition, needed === "setup" ? "service_completed_successfully" : "service_healthy")
        if (needed !== "setup") {
          assert.isTrue(services[needed]!.healthcheck!.test.every((part) => typeof part === "string"))
        }
      }
    }
  })
})

describe("lite: template.yaml", () => {
  interface Template {
    readonly Parameters: Record<string, { readonly Type: string }>
    readonly Resources: Record<string, { readonly Type: string; readonly Properties?: Record<string, any> }>
    readonly Outputs: Record<string, unknown>
  }
  const tags = ["Ref", "Sub", "GetAtt"].map((name) => ({
    tag: `!${name}`,
    resolve: (text: string) => ({ [name === "Ref" ? name : `Fn::${name}`]: text })
  }))
  const template = parse(read("template.yaml"), { customTags: tags }) as Template
  const { Parameters, Resources } = template

  it("refers only to what it declares", () => {
    const declared = [...Object.keys(Parameters), ...Object.keys(Resources), "TriggerUrl"] // which SAM makes for the function
    const text = JSON.stringify(template)
    const names = [
      ...[...text.matchAll(/"Ref":"(\w+)"/g)].map(([, name]) => name!),
      ...[...text.matchAll(/"Fn::GetAtt":"(\w+)\.\w+"/g)].map(([, name]) => name!),
      ...[...text.matchAll(/\$\{(\w+)\}/g)].map(([, name]) => name!)
    ]
    assert.isAbove(names.length, 7)
    assert.deepStrictEqual(names.filter((name) => !declared.includes(name)), [])
    for (const { Type } of Object.values(Resources)) {
      assert.match(Type, /^AWS::(SQS::Queue|S3::Bucket|Serverless::Function)$/)
    }
  })

  it("has the queues of the services, each with its dead letters", () => {
    const queues = Object.entries(Resources).filter(([, { Type }]) => Type === "AWS::SQS::Queue")
    const withPolicy = queues.filter(([, { Properties }]) => Properties?.["RedrivePolicy"] !== undefined)
    const declared = /const queues = \{(.*)\}/.exec(read("shared/platform.ts"))![1]!
    const names = [...declared.matchAll(/(\w+): \{/g)].map(([, name]) => name)
    assert.sameMembers(withPolicy.map(([, { Properties }]) => Properties!["QueueName"]), names)
    for (const [name, { Properties }] of withPolicy) {
      const { deadLetterTargetArn, maxReceiveCount } = Properties!["RedrivePolicy"]
      assert.deepStrictEqual(deadLetterTargetArn, { "Fn::GetAtt": `${name}Dead.Arn` })
      assert.strictEqual(Resources[`${name}Dead`]!.Properties!["QueueName"], `${Properties!["QueueName"]}-dead`)
      assert.strictEqual(maxReceiveCount, 20)
    }
  })

  it("gives the function what it reads, and calls it with what it understands", () => {
    const { Environment, Events, Handler } = Resources["Trigger"]!.Properties!
    assert.sameMembers(Object.keys(Environment.Variables), ["STATE_DATABASE_URL", "WEBHOOK_SECRET"])
    assert.strictEqual(Handler, "lambda.handler")
    assert.include(read("services/lambda.ts"), "export const handler = ")
    const { Input, ScheduleExpression, ScheduleExpressionTimezone } = Events.Census.Properties
    assert.deepStrictEqual(JSON.parse(Input), { schedules: "due" })
    // The times of the schedule, which are in UTC.
    assert.deepStrictEqual([ScheduleExpression, ScheduleExpressionTimezone], ["cron(0 * * * ? *)", "UTC"])
    assert.include(read("shared/settings.ts"), `"CENSUS_CRON").pipe(Config.withDefault("0 * * * *"))`)
  })
})

describe("README.md", () => {
  const page = read("README.md")

  it("lists the services of the entry file", () => {
    const services = [...read("services/main.ts").matchAll(/^ +(\w+): \(\) => import/gm)].map(([, name]) => name!)
    const [, section] = page.split("\n## Services\n")
    const [table] = section!.split("\n## ")
    const rows = [...table!.matchAll(/^\| `(\w+)`/gm)].map(([, name]) => name!)
    assert.sameMembers(rows, services)
  })

  it("shows the schedule of template.yaml", () => {
    const [schedule] = Docs.blocks(page, "yaml")
    assert.include(Docs.withoutIndentation(read("template.yaml")), Docs.withoutIndentation(schedule!.code))
  })

  it("shows commands that exist", () => {
    const { scripts } = JSON.parse(Docs.read("package.json")) as { readonly scripts: Record<string, string> }
    const commands = Docs.blocks(page, "sh").flatMap(({ code }) => code.split("\n"))
    for (const command of commands) {
      const npm = /^npm run (\w+)/.exec(command)?.[1]
      if (npm === undefined) assert.isTrue(existsSync(file(/-f (\S+)/.exec(command)![1]!)), command)
      else assert.property(scripts, npm)
    }
  })
})
