import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Close, Draw, Office } from "../programs/questions.ts"
import * as App from "../utils/app.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"

const rounds = 4
const perRound = 40

const layer = Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => App.store(url))).pipe(
  Layer.provideMerge(PgServer.layer)
)

describe("Workers and callers that are killed", () => {
  it.live(
    `leave each of ${rounds * perRound} questions answered once, over executions`,
    () =>
      Effect.scoped(Effect.gen(function*() {
        const client = yield* Client.Client
        const { sql, url } = yield* PgServer.PgServer
        yield* client.start(Office, { instanceId: "office", payload: 0 })
        const answers = new Map<string, Set<string>>()
        const collect = (output: string) => {
          for (const [, name, answer] of output.matchAll(/^(q\d+)=(\d+)$/gm)) {
            answers.set(name!, (answers.get(name!) ?? new Set()).add(answer!))
          }
        }
        let survivor = yield* ChildProcess.start("questionWorker", url)
        yield* survivor.printed("ready")
        let answeredAtKill = 0
        for (let round = 0; round < rounds; round++) {
          const victim = yield* ChildProcess.start("questionWorker", url)
          yield* victim.printed("ready")
          const range = [round * perRound + 1, (round + 1) * perRound].map(String)
          const callers = yield* Effect.forEach([1, 2], () => ChildProcess.start("questioner", url, ...range))
          // In the midst of it, a worker and a caller die; the other caller asks the same questions.
          yield* callers[0]!.printed("=")
          yield* round % 2 === 0 ? victim.kill : survivor.kill
          yield* callers[0]!.kill
          collect(callers[0]!.output())
          answeredAtKill += answers.size - round * perRound
          if (round % 2 === 1) survivor = victim
          yield* callers[1]!.printed("done")
          collect(callers[1]!.output())
        }
        const questions = Array.from({ length: rounds * perRound }, (_, i) => `q${i + 1}`)
        assert.deepStrictEqual([...answers.keys()].sort(), questions.toSorted())
        // The newest are kept; asked again, they have the same answers.
        const last = questions.slice(-perRound)
        for (const requestId of last) {
          const again = yield* client.request(Draw, "office", requestId, { requestId, timeout: "4 minutes" })
          answers.get(requestId)!.add(String(again))
        }
        assert.deepStrictEqual([...answers].filter(([, seen]) => seen.size !== 1), [])
        yield* client.send(Close, "office")
        const given = yield* client.wait(Office, "office", { timeout: "4 minutes" })
        assert.strictEqual(given, questions.length)
        const numbers = [...answers.values()].map(([number]) => Number(number)).sort((a, b) => a - b)
        assert.deepStrictEqual(numbers, questions.map((_, i) => i + 1))
        const [executions] = yield* sql<{ count: number }>("SELECT count(*)::int AS count FROM executions")
        assert.isAbove(executions!.count, 1)
        assert.isBelow(answeredAtKill, questions.length, "no kill came in the midst of it: the test showed nothing")
      })).pipe(Effect.provide(layer))
  )
})
