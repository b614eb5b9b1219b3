/**
 * The dashboard with a login that has one of the roles that are shipped.
 */
import { assert, it } from "@effect/vitest"
import { Orchestration } from "duroxide-prisma"
import { Schedules } from "duroxide-prisma/schedules"
import * as Effect from "effect/Effect"
import { randomUUID } from "node:crypto"
import * as Roles from "../../src/prisma/Roles.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Served from "./served.ts"

const ofClient = [
  "start",
  "signal",
  "request",
  "interrupt",
  "terminate",
  "run schedule",
  "pause schedule",
  "backfill schedule",
  "delete schedule"
] as const

const Wait = Orchestration.make("Wait")

/** A login with this role alone, until the scope is closed. */
const loginOf = Effect.fnUntraced(function*(url: string, role: "reader" | "client" | "worker") {
  const name = `dashboard_${randomUUID().replaceAll("-", "")}`
  const password = randomUUID()
  const admin = yield* PgServer.connect(url)
  yield* Effect.acquireRelease(
    Effect.promise(() => admin.query(`CREATE ROLE ${name} LOGIN PASSWORD '${password}'`)),
    () => Effect.promise(() => admin.query(`DROP OWNED BY ${name}; DROP ROLE ${name}`))
  )
  yield* Roles.apply({ url, roles: { [role]: name } })
  const own = new URL(url)
  own.username = name
  own.password = password
  return own.toString()
})

it.layer(PgServer.layer, { excludeTestServices: true })("The dashboard with the role", (it) => {
  for (
    const [role, may] of [
      ["reader", []],
      ["client", ofClient],
      ["worker", [...ofClient, "pause", "resume", "fork", "delete", "set limit", "remove limit"]]
    ] as const
  ) {
    it.effect(`${role} ${may.length === 0 ? "only shows" : `may ${may.join(", ")}`}, and refuses the rest with a message`, () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.PgServer
        const owner = yield* Served.open(url)
        for (const action of ["signal", "interrupt", "terminate", "pause", "fork"]) {
          yield* owner.client.start(Wait, { instanceId: `${role} ${action}` })
        }
        // The pause of an instance that has one, a history to fork, and one that has ended.
        yield* owner.admin.pause({ _tag: "Orchestration", name: role })
        yield* owner.client.start(Wait, { instanceId: `${role} delete` })
        yield* sql(
          `UPDATE executions SET status = 'Completed', completed_at = now() WHERE instance_id = '${role} delete';
           UPDATE instances SET status = 'Completed' WHERE instance_id = '${role} delete';
           INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
           SELECT '${role} fork', 1, 1, 'OrchestrationStarted', json_build_object(
             'event_id', 1, 'source_event_id', null, 'instance_id', '${role} fork', 'execution_id', 1,
             'timestamp_ms', 1795000000000, 'duroxide_version', '1000.1.0', 'type', 'OrchestrationStarted',
             'name', 'Wait', 'version', '1.0.0', 'input', 'null', 'parent_instance', null, 'parent_id', null)::text, now()`
        )
        yield* Effect.flatMap(Schedules.Schedules, (schedules) =>
          schedules.create(
            Schedules.make(`${role} hourly`, { timing: Schedules.every("1 hour"), start: Wait })
          )).pipe(Effect.provide(Schedules.layerClient), Effect.provideContext(owner.services))
        yield* owner.admin.setLimit("activity", `${role} has one`, { total: { concurrency: 1 } })
        const { as } = yield* Served.open(yield* loginOf(url, role))
        const { operate, read } = yield* as("operate")
        const target = { kind: "orchestration", name: role, version: null } as const
        const actions = {
          start: operate.start({ payload: { orchestration: "Wait", instanceId: `${role} start`, payload: null } }),
          signal: operate.signal({ payload: { instanceId: `${role} signal`, name: "Go", payload: null } }),
          interrupt: operate.interrupt({ payload: { instanceId: `${role} interrupt` } }),
          terminate: operate.terminate({ payload: { instanceId: `${role} terminate` } }),
          pause: operate.pause({ payload: { target: { kind: "instance", name: `${role} pause`, version: null } } }),
          resume: operate.resume({ payload: { target } }),
          fork: operate.fork({ payload: { instanceId: `${role} fork`, atEvent: 1, newId: `${role} forked` } }),
          delete: operate.delete({ payload: { instanceId: `${role} delete`, force: false } }),
          request: operate.request({
            payload: { instanceId: `${role} signal`, name: "Why", payload: null, timeoutMs: 100 }
          }),
          "set limit": operate.setLimit({
            payload: {
              kind: "activity",
              name: role,
              scope: { kind: "total", key: null },
              bound: { concurrency: 1, rate: null }
            }
          }),
          "remove limit": operate.removeLimit({ payload: { kind: "activity", name: `${role} has one` } }),
          "run schedule": operate.runSchedule({ payload: { name: `${role} hourly` } }),
          "pause schedule": operate.pauseSchedule({ payload: { name: `${role} hourly` } }),
          "backfill schedule": operate.backfillSchedule({
            payload: { name: `${role} hourly`, fromMs: Date.now() - 86_400_000, toMs: Date.now(), dryRun: false }
          }),
          "delete schedule": operate.deleteSchedule({ payload: { name: `${role} hourly` } })
        }
        for (const [name, action] of Object.entries(actions)) {
          const refused = yield* Effect.match(
            action as Effect.Effect<unknown, { readonly _tag: string; readonly message: string }>,
            {
              onFailure: ({ _tag, message }) => `${_tag}: ${message}`,
              onSuccess: () => undefined
            }
          )
          if ((may as ReadonlyArray<string>).includes(name)) assert.isUndefined(refused, name)
          else {assert.match(
              refused ?? `${name} was done`,
              /^Forbidden: the database login of the dashboard may not do this/
            )}
        }
        // Everything is shown.
        assert.isNotEmpty((yield* read.instances({ query: { idPrefix: role } })).instances)
        assert.isNotEmpty((yield* read.overview({})).counts)
        yield* read.instance({ query: { id: `${role} fork` } })
        yield* read.definitions({})
        yield* read.queues({})
        yield* read.tasks({ query: {} })
        yield* read.schedules({ query: {} })
        yield* read.limits({})
        yield* read.streams({ query: { id: `${role} fork` } })
        yield* read.chunks({ query: { id: `${role} fork`, stream: "none" } })
        yield* read.requests({ query: { id: `${role} fork` } })
        const recorded = (yield* read.actions({ query: {} })).actions.filter((one) => one.target.startsWith(role))
        if (role === "reader") assert.isEmpty(recorded)
        else {assert.includeMembers(recorded.map(({ action, outcome }) => `${action} ${outcome}`), [
            "start done",
            "terminate done"
          ])}
      }).pipe(Effect.scoped))
  }
})
