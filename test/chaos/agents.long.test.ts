import { assert, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Allowance, allowed, Talk } from "../programs/agent.ts"
import * as ModelServer from "../programs/modelServer.ts"
import * as App from "../utils/app.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"

const conversations = 40
const kills = 6
/** Calls of tools in a conversation. */
const tools = 3

const layer = Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => App.store(url))).pipe(
  Layer.provideMerge(PgServer.layer)
)

/** Two notes at once, then a third one, then an answer that names the conversation. */
const script = ({ messages }: ModelServer.ModelRequest): ModelServer.Answer => {
  const noted = messages.filter(({ role }) => role === "tool").length
  const note = (id: number) => ({ id: `c${id}`, name: "Note", params: { text: String(id) } })
  return noted === 0
    ? { calls: [note(1), note(2)] }
    : noted === 2
    ? { calls: [note(3)] }
    : { text: `${messages[0]!.content}: ${noted}` }
}

const keyOf = ({ messages }: ModelServer.ModelRequest) => `${messages[0]!.content}: ${messages.length}`

it.live(
  "agents killed in the middle of calls: an answer that is recorded costs no second call, and each tool has one effect",
  () =>
    Effect.scoped(Effect.gen(function*() {
      const { sql, url } = yield* PgServer.PgServer
      const client = yield* Client.Client
      yield* sql("CREATE TABLE effects (key text PRIMARY KEY, instance_id text, note text)")
      yield* sql("CREATE TABLE runs (key text)")
      const model = yield* ModelServer.start(script, { delayMs: 200 })
      const worker = ChildProcess.start("agent", url, model.url)
      let victim = yield* worker
      let survivor = yield* worker
      yield* Effect.all([victim.printed("ready"), survivor.printed("ready")])
      const ids = Array.from({ length: conversations }, (_, index) => `talk ${index}`)
      yield* Effect.forEach(ids, (instanceId) => client.start(Talk, { instanceId, payload: instanceId }), {
        concurrency: "unbounded"
      })
      /** What a kill may interrupt: calls and runs of tools whose outcome is not recorded. */
      const unrecorded = Effect.gen(function*() {
        const [recorded] = yield* sql<{ calls: number; tools: number }>(
          `SELECT count(*) FILTER (WHERE s.event_data LIKE '%"Assistant"%')::int AS calls,
             count(*) FILTER (WHERE s.event_data NOT LIKE '%"Assistant"%')::int AS tools
           FROM history e JOIN history s ON s.instance_id = e.instance_id AND s.execution_id = e.execution_id
             AND s.event_id = (e.event_data::json->>'source_event_id')::bigint
           WHERE e.event_type = 'ActivityCompleted'`
        )
        const [begun] = yield* sql<{ tools: number }>(`SELECT count(DISTINCT key)::int AS tools FROM runs`)
        const calls = new Set(model.requests.map(keyOf)).size
        return { calls: calls - recorded!.calls, tools: begun!.tools - recorded!.tools }
      })
      let interrupted = { calls: 0, tools: 0 }
      for (let kill = 1; kill <= kills; kill++) {
        const at = Math.floor(conversations * allowed * kill / (kills + 1))
        yield* Effect.repeat(Effect.andThen(Effect.sleep("5 millis"), Effect.sync(() => model.requests.length)), {
          until: (requests) => requests >= at
        })
        yield* victim.kill
        const { calls, tools } = yield* unrecorded
        interrupted = { calls: interrupted.calls + calls, tools: interrupted.tools + tools }
        // One may have all the work: each is killed in its turn.
        victim = survivor
        survivor = yield* worker
        yield* survivor.printed("ready")
      }
      const results = yield* Effect.forEach(ids, (id) => client.wait(Talk, id, { timeout: "4 minutes" }), {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual(results, ids.map(() => [`spent ${allowed}`]))
      const spent = yield* Effect.forEach(ids, (id) => client.read(Allowance.spent, id))
      assert.deepStrictEqual(spent.map((one) => one._tag === "Some" ? one.value.calls : 0), ids.map(() => allowed))

      const again = model.requests.length - conversations * allowed
      assert.isAtMost(again, interrupted.calls, "only calls under way at a kill are made again")
      assert.isAbove(again, 0, "no kill interrupted a call: the test showed nothing")

      const [effects] = yield* sql(
        `SELECT count(*)::int AS count, count(DISTINCT (instance_id, note))::int AS notes FROM effects`
      )
      assert.deepStrictEqual(effects, { count: conversations * tools, notes: conversations * tools })
      // A conversation continues when an answer is recorded.
      const asked = new Map<string, number>()
      for (const { messages } of model.requests) {
        const talk = messages[0]!.content
        assert.isAtLeast(messages.length, asked.get(talk) ?? 0, "an answer that is recorded costs no second call")
        asked.set(talk, messages.length)
      }

      const [runs] = yield* sql<{ count: number }>(`SELECT count(*)::int AS count FROM runs`)
      assert.isAtMost(runs!.count, conversations * tools + interrupted.tools)
      console.log(`${kills} kills: ${again} calls and ${runs!.count - conversations * tools} tools ran again`)
    })).pipe(Effect.provide(layer))
)
