import { assert, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Completion } from "duroxide-prisma/recipes/completions"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Random from "effect/Random"
import { Approve, Asking, keys } from "../programs/external.ts"
import * as App from "../utils/app.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"

const instances = 60
const kills = 4

interface Token {
  readonly instance_id: string
  readonly activity_id: number
  readonly token: string
}

it.live(
  `${instances} instances of two calls that end outside, their worker killed ${kills} times: one answer counts for each`,
  () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* PgServer.database
      yield* sql("CREATE TABLE tokens (instance_id text, activity_id integer, token text)")
      const services = yield* Layer.build(
        Completion.layer({ activities: [Approve] }).pipe(
          Layer.provideMerge(App.store(url)),
          Layer.provide(keys)
        )
      )
      const client = yield* Effect.provide(Client.Client, services)
      let worker = yield* ChildProcess.start("external", url, schema)
      yield* worker.printed("ready")
      const ids = Array.from({ length: instances }, (_, i) => `asking-${i}`)
      yield* Effect.forEach(ids, (instanceId) => client.start(Asking, { instanceId }), { concurrency: 10 })

      /** By call: what the first answer said that was taken. */
      const taken = new Map<string, number>()
      const answered = new Map<string, number>()
      /** Answers a call, twice at once and differently; who asked twice finds the same call. */
      const answer = ({ activity_id, instance_id, token }: Token) => {
        const call = `${instance_id} ${activity_id}`
        const one = (n: number) =>
          Approve.complete(token, n).pipe(
            Effect.provide(services),
            Effect.map(({ state }) => {
              if (state === "taken") {
                assert.strictEqual(taken.get(call) ?? n, n, `two answers of ${call} were taken`)
                taken.set(call, n)
              }
            }),
            Effect.catchTags({
              AlreadyCompleted: () => Effect.void,
              NotAwaited: () => Effect.void
            })
          )
        answered.set(call, (answered.get(call) ?? 0) + 1)
        return Effect.all([one(activity_id * 10), one(activity_id * 10 + 1)], { concurrency: "unbounded" })
      }

      const seen = new Set<string>()
      const ended = Effect.map(
        sql<{ count: number }>("SELECT count(*)::int AS count FROM executions WHERE status = 'Completed'"),
        ([row]) => row!.count
      )
      let killed = 0
      while ((yield* ended) < instances) {
        const tokens = (yield* sql<Token>("SELECT * FROM tokens")).filter(({ token }) => !seen.has(token))
        for (const { token } of tokens) seen.add(token)
        const answering = yield* Effect.forkChild(Effect.forEach(tokens, answer, { concurrency: 20, discard: true }))
        if (killed < kills && seen.size >= (killed + 1) * instances / 3) {
          yield* Effect.sleep(yield* Random.nextIntBetween(0, 60))
          yield* worker.kill
          killed++
          worker = yield* ChildProcess.start("external", url, schema)
        }
        yield* Effect.sleep("50 millis")
        yield* Effect.sync(() => answering.pollUnsafe())
      }

      const results = yield* Effect.forEach(ids, (id) => client.wait(Asking, id), { concurrency: 20 })
      // Once all is stored, each call has one answer, and no caller knows of another one.
      const calls = yield* sql<Token>("SELECT DISTINCT ON (instance_id, activity_id) * FROM tokens ORDER BY 1, 2")
      assert.lengthOf(calls, 2 * instances)
      for (const id of ids) {
        const [first, second] = calls.filter(({ instance_id }) => instance_id === id)
        const [a, b] = results[ids.indexOf(id)]!
        for (const [call, n] of [[first!, a], [second!, b]] as const) {
          assert.include([call.activity_id * 10, call.activity_id * 10 + 1], n)
          assert.strictEqual(taken.get(`${id} ${call.activity_id}`) ?? n, n)
        }
      }
      assert.strictEqual(killed, kills)
      console.log(`${seen.size} tokens for ${calls.length} calls, ${taken.size} answers were known to be taken at once`)
    }).pipe(Effect.scoped, Effect.provide(PgServer.layer))
)
